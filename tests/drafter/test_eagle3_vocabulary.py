"""The checkpoint's maps between the policy's vocabulary and the draft's."""

import numpy as np
import torch

from specrl.drafter import eagle3_vocabulary as vocabulary


def test_maps_go_there_and_back() -> None:
    chosen = np.sort(np.random.default_rng(0).choice(500, 60, replace=False))
    target_ids = torch.from_numpy(chosen)
    d2t, t2d = vocabulary.d2t_of(target_ids), vocabulary.t2d_of(target_ids, 500)
    assert (torch.arange(60) + d2t == target_ids).all()
    assert t2d.sum() == 60
    assert (vocabulary.target_ids_of({"d2t": d2t}, 60) == target_ids).all()
    assert (t2d.nonzero().flatten() == target_ids).all()
    back = vocabulary.draft_ids_of(target_ids, 500)
    assert (back[target_ids] == torch.arange(60)).all()
    assert (back[~t2d] == vocabulary.OUTSIDE).all()
