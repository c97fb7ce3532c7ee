"""Every mistake in a config as one line: the key, the value, what is allowed, the fix."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import OmegaConfBaseException

from specrl.config import suggestions, tree
from specrl.errors import UserError

# Hydra raises ValueError and AssertionError for some malformed overrides.
COMPOSITION_ERRORS = (HydraException, OmegaConfBaseException, ValueError, AssertionError)

TYPES = {
    "Any": "a value",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "list[int]": "a list of whole numbers, written [0,1]",
    "list[str]": "a list of texts, written [a,b]",
    "dict[str, Any]": "a mapping, written {key:value}",
    "dict[str, str]": "a mapping of texts, written {key:value}",
}

# What a path or hub id given as a choice was meant for.
PATHS = {
    "model": "model=qwen3_8b model.path=",
    "drafter": "drafter=draft_model drafter.model=",
    "task": "task=gsm8k task.train_data=",
}


class LauncherKnob(NamedTuple):
    """One of Hydra's own keys that users set, in a launcher's dataclass below hydra_plugins."""

    launcher: str
    takes: str


LAUNCHER_KNOBS = {
    "hydra.launcher.jobs": LauncherKnob(
        "hydra/launcher=specrl_local",
        "a whole number of points at once, e.g. hydra.launcher.jobs=1",
    ),
    "hydra.launcher.poll_s": LauncherKnob(
        "hydra/launcher=specrl_slurm", "a number of seconds, e.g. hydra.launcher.poll_s=10"
    ),
}
OPTIONAL_SECTION = "model.warm_start.examples"  # null with most choices
OWN_PLACES = re.compile(
    r"hydra(\.(run|sweep|output_subdir|job\.chdir)|[./](job_logging|hydra_logging))(\.|$)"
)
HYDRA_PARTS = re.compile(r"hydra(\.(launcher|sweeper)(\._target_)?)?$")
FIXES = {
    "Could not delete": "leave it out",
    "Primary config directory not found": "give --config-path a folder with train.yaml",
    "does not support sweep type": "write the values, as in drafter.k=3,5",
    "range() arg 3 must not be zero": "give range(start,stop,step) another step",
}
"""What to do about what Hydra only states."""


def check_overrides(overrides: Sequence[str]) -> None:
    """Raises `UserError` for overrides that are malformed, misuse a group or move the run."""
    parser = OverridesParser.create()
    for text in overrides:
        try:
            override = parser.parse_override(text)
        except HydraException as error:
            raise UserError(_syntax(text)) from error
        if override.key_or_group == "":
            raise UserError(f"'{text}' names no key; write key=value, e.g. steps=100")
        if override.is_hydra_override() or override.key_or_group == "hydra":
            _check_hydra(override, text)
        if override.is_delete() and override.key_or_group not in tree.groups():
            _check_removal(override.key_or_group)
        if override.key_or_group in tree.groups() and override.package is None:
            _check_group(override, text)
        elif re.search("[@/:]", override.get_key_element()) and not text.startswith("hydra/"):
            raise UserError(f"{text}: groups here take no path and no package; see specrl --help")


def explain(error: Exception) -> str:
    """One line for what Hydra or OmegaConf raised."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, MissingConfigException) and error.options is not None:
        return unknown_choice(*_group_and_name(error.missing_cfg_file or ""), error.options)
    text = str(error)
    if "Unexpected type for root: NoneType" in text:  # all that OmegaConf says below a null
        return unknown_key(OPTIONAL_SECTION)
    if isinstance(error, OverrideParseException):
        return _syntax(error.override)
    ambiguous = re.match(r"Ambiguous value for argument '(.*)'", text)
    if ambiguous:
        return _ambiguous(ambiguous.group(1))
    cause = error.__cause__ if isinstance(error.__cause__, OmegaConfBaseException) else error
    return _from_omegaconf(cause, text)


def not_set(key: str) -> str:
    """The line for a key that still is ???."""
    if key in tree.groups():
        return f"{key} is not set; use {key}=<choice>, one of {', '.join(tree.options(key))}"
    knob = suggestions.knob(key)
    meaning = f" ({knob.help.rstrip('.')})" if knob else ""
    return f"{key} is not set; add {key}=<value>{meaning}"


def unknown_key(key: str, value: str = "") -> str:
    """The line for a key that no dataclass has; `value` is what was assigned, if known."""
    shown = f"{key}={value}" if value else key
    own = LAUNCHER_KNOBS.get(key)
    homes = suggestions.choices_with(key) or ([own.launcher] if own else [])
    if homes:
        return f"{shown}: {key} exists only with {' or '.join(homes)}; add that, or leave it out"
    near = suggestions.near_key(key) or suggestions.near(key, LAUNCHER_KNOBS)
    if near:
        meant = f"{near}={value}" if value else near
        return f"{shown}: there is no {key}; did you mean {meant}?"
    group = key.split(".")[0]
    names = [known.split(".")[1] for known in suggestions.keys_of(group)]
    if not names:
        return f"{shown}: there is no {key}; `specrl --help` lists what there is"
    listed = ", ".join(dict.fromkeys(names))
    return f"{shown}: there is no {key}; {group} has {listed} (see specrl {group} --help)"


def unknown_choice(group: str, name: str, options: Sequence[str]) -> str:
    """The line for a choice that its group does not have."""
    near = suggestions.near(name, options)
    hint = f"; did you mean {group}={near}?" if near else ""
    if "/" in name and group in PATHS:
        local = name.startswith(("/", ".", "~")) or group != "model"
        hint = f"; for a model or data of your own write {PATHS[group]}{name}"
        hint += "" if local else " model.revision=null"
    return f"{group}={name} is not a choice; use one of {', '.join(options)}{hint}"


def _group_and_name(path: str) -> tuple[str, str]:
    """model/foo/bar is the choice foo/bar of model."""
    for group in tree.groups():
        if path.startswith(f"{group}/"):
            return group, path.removeprefix(f"{group}/")
    group, _, name = path.rpartition("/")
    return group, name


def _check_hydra(override: Override, text: str) -> None:
    if OWN_PLACES.match(override.key_or_group):
        raise UserError(f"{text}: specrl places runs and their logs itself; use output_dir")
    if HYDRA_PARTS.match(override.key_or_group):
        raise UserError(
            f"{text} cannot be set; choose hydra/launcher=specrl_local or specrl_slurm, or leave "
            "it out"
        )
    if override.is_sweep_override():
        raise UserError(f"{text}: what runs a sweep cannot vary in it; name one value")


def _check_removal(key: str) -> None:
    """A knob of the run without a value would take its schema's default, silently."""
    if suggestions.knob(key):
        raise UserError(_removal(key))
    known = suggestions.section(key)
    if known:
        raise UserError(f"{key} cannot be removed; set its knobs, e.g. {known}=<value>")


def _check_group(override: Override, text: str) -> None:
    group = override.key_or_group
    choices = ", ".join(tree.options(group))
    default = tree.defaults()[group]
    if override.is_add():
        raise UserError(f"{text}: {group} is always there; write {text.lstrip('+')}")
    if override.is_delete():
        if default is not None:
            raise UserError(f"{text}: every run needs a choice of {group}; use one of {choices}")
        raise UserError(f"{text}: to run without, leave {group} out")
    if group == "sweep" and override.is_sweep_override():
        raise UserError(f"{text}: a command runs one sweep; start them one after another")
    value = override.value()
    if isinstance(value, str) or override.is_sweep_override():
        return
    if value is None and default is None:
        raise UserError(f"{text}: to run without, leave {group} out")
    raise UserError(f"{text}: {group} takes the name of one choice; use one of {choices}")


def _syntax(text: str) -> str:
    group, _, value = text.partition("=")
    if group in PATHS and "/" in value:
        return unknown_choice(group, value, tree.options(group))
    if "=" in text:
        return f"'{text}' cannot be read; write key=value, with special characters 'key=\"a b\"'"
    if text in tree.groups():
        return f"'{text}' has no value; use {text}=<choice>, one of {', '.join(tree.options(text))}"
    knob = suggestions.knob(text)
    if knob:
        return f"'{text}' has no value; write {text}=<value>, e.g. {text}={knob.default}"
    if suggestions.section(text):
        return f"'{text}' has knobs of its own; write {suggestions.section(text)}=<value>"
    near = suggestions.near_key(text)
    hint = f"; did you mean {near}=<value>?" if near else ", e.g. steps=100"
    return f"'{text}' is not of the form key=value{hint}"


def _ambiguous(text: str) -> str:
    key, _, values = text.partition("=")
    return f"{text} has several values; add -m to sweep over them, or write a list {key}=[{values}]"


def _from_omegaconf(cause: Exception, text: str) -> str:
    message = str(cause) or type(cause).__name__
    found = re.search(r"full_key: (\S+)", message)
    key = found.group(1).partition("[")[0] if found else ""
    assigned, _, value = _override_in(text).partition("=")
    if assigned.startswith(f"{key}.") and key:
        return unknown_key(assigned, value)
    if key.startswith(f"{assigned}.") and assigned and "is not in struct" in message:
        return _addition(assigned, value)
    if "already at" in text:
        return f"+{assigned}={value}: {assigned} is there already; write {assigned}={value}"
    source = re.match(r"In '(.+?)'", text)
    prefix = f"{source.group(1)}.yaml: " if source else ""
    return prefix + _line(message, key, value if assigned == key else "")


def _override_in(text: str) -> str:
    """The key=value that Hydra's message quotes, "" where it quotes none."""
    quoted = re.findall(r"(?:override |config use |remove \+ prefix: ')(\+*[^\s']+=[^\n']*)", text)
    return quoted[0].lstrip("+") if quoted else ""


def _line(message: str, key: str, value: str) -> str:
    shown = f"{key}={value}" if value else key
    if "Value '' of type 'str'" in message:
        return f"{key} is empty; give it a value: {_wanted(key)}"
    if "not Optional" in message:
        return f"{key}=null is not allowed; use {_wanted(key)}"
    if "does not support deletion" in message:
        return _removal(key)
    if "is not in struct" in message:
        return _addition(key, value)
    if "not in '" in message:
        return unknown_key(key, value)
    if "nterpolation" in message:
        return f"{shown}: {_interpolation(message.splitlines()[0])}, or write the value itself"
    if suggestions.section(key):
        return f"{shown}: {key} has knobs of its own; write {suggestions.section(key)}=<value>"
    if suggestions.knob(key) or key in LAUNCHER_KNOBS:
        return f"{shown} is not allowed; use {_wanted(key)}"
    details = [line for line in message.splitlines() if not line.startswith(("In '", " "))]
    fix = next((f"; {fix}" for stated, fix in FIXES.items() if stated in message), "")
    return (f"{shown}: {details[0]}" if shown else details[0]) + fix


def _removal(key: str) -> str:
    return f"{key} cannot be removed; use {_wanted(key)}"


def _addition(key: str, value: str) -> str:
    shown = f"{key}={value}" if value else key
    return f"{shown} is new in a free-form mapping; write +{key}={value or '<value>'}"


def _interpolation(message: str) -> str:
    variable = re.search(r"Environment variable '(.+?)' not found", message)
    if variable:
        return f"the environment variable {variable.group(1)} is not set; set it"
    other = re.search(r"Interpolation key '(.+?)' not found", message)
    if other:
        return f"there is no {other.group(1)} to take the value from; name a key that is there"
    return f"{message}; correct it"


def _wanted(key: str) -> str:
    knob = suggestions.knob(key)
    if knob is None:
        own = LAUNCHER_KNOBS.get(key)
        return own.takes if own else f"what `specrl {key.split('.')[0]} --help` lists"
    plain, _, optional = knob.type.partition(" | ")
    wanted = TYPES.get(plain, plain) + (" or null" if optional else "")
    named = knob.default not in ("required", "''", "[]", "{}", "null") and "$" not in knob.default
    return f"{wanted}, e.g. {knob.key}={knob.default}" if named else wanted
