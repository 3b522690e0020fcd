"""Stable codes of what users are told: one for each kind of error or warning, with a paragraph in `docs/errors.md`.

A code never changes its meaning, and a code that is no longer used is never given away again.
"""

import re
from enum import StrEnum
from pathlib import Path
from typing import Final


class Code(StrEnum):
    """The codes, by subject: 1 config, 2 programs and variables, 3 servers, 5 storage, 6 names, 7 texts."""

    CONFIG_MISSING = "FT101"
    CONFIG_UNREADABLE = "FT102"
    CONFIG_SYNTAX = "FT103"
    CONFIG_SHAPE = "FT104"
    SETTING_UNKNOWN = "FT105"
    SETTING_VALUE = "FT106"
    SERVER_ENTRY = "FT107"
    VARIABLE_MISSING = "FT108"
    CLIENT_VARIABLE = "FT109"
    KEY_NOT_READ = "FT110"
    NO_SERVERS = "FT111"
    PROFILE_UNKNOWN = "FT112"
    OPTION_WRONG = "FT114"
    FILE_OPEN_TO_OTHERS = "FT115"
    SENT_IN_CLEAR = "FT116"
    SERVED_OPENLY = "FT117"
    TOKEN_WEAK = "FT118"  # noqa: S105  # a code
    ENCODER_WRONG = "FT119"
    SERVER_TWICE = "FT120"
    NAME_TWICE = "FT121"
    STARTS_ITSELF = "FT122"
    PATTERN_WITHOUT_SERVER = "FT123"
    PROJECTS_NOT_READ = "FT124"
    FOLDER_OF_CLIENT = "FT125"
    SERVER_DISABLED = "FT126"
    KEYRING = "FT127"

    PROGRAM_MISSING = "FT201"
    NODE_OLD = "FT202"
    TOKENS_ESTIMATED = "FT203"
    VARIABLE_NOT_IN_CLIENT = "FT204"
    PROGRAM_NOT_IN_CLIENT = "FT205"
    REGISTRATION_BROKEN = "FT206"
    REGISTERED_TWICE = "FT207"
    TELEMETRY_MISSING = "FT208"
    JOB_FAILING = "FT209"

    SERVER_FAILED = "FT301"
    SERVER_SLOW = "FT302"
    CREDENTIAL_MISSING = "FT303"
    DOCKER_DOWN = "FT304"
    RUNTIME_WRONG = "FT305"
    PACKAGE_MISSING = "FT306"
    PORT_IN_USE = "FT307"
    NETWORK_DOWN = "FT308"
    FILE_MISSING = "FT309"
    PERMISSION_DENIED = "FT310"
    SIGN_IN = "FT311"
    CREDENTIAL_REFUSED = "FT312"
    ADDRESS_WRONG = "FT313"
    DISK_FULL = "FT314"
    ARGUMENTS_WRONG = "FT315"
    MODULE_MISSING = "FT316"
    NOT_MCP = "FT317"
    TOOL_DROPPED = "FT318"
    OUTPUT_NOISY = "FT319"
    CHANGE_HELD = "FT320"
    SERVER_CROWDED = "FT321"
    SIGN_IN_FAILED = "FT322"
    SIGN_IN_NOT_KEPT = "FT323"
    TOOLS_NOT_LISTED = "FT324"
    PAGES_TOGETHER = "FT325"

    STORAGE_UNUSABLE = "FT501"
    STORAGE_FOREIGN = "FT502"
    STORAGE_NEWER = "FT503"
    STORAGE_OLDER = "FT504"
    STORAGE_READ_ONLY = "FT505"
    STORAGE_DAMAGED = "FT506"
    STORAGE_EXPOSED = "FT507"
    STORAGE_NOT_USED = "FT508"
    STORAGE_ADDRESS = "FT509"

    NAME_CHANGED = "FT601"
    NAME_TAKEN = "FT602"
    PATTERN_WITHOUT_TOOL = "FT603"
    PINS_TOO_LARGE = "FT604"

    TEXT_SUSPICIOUS = "FT701"


FOR_THE_USER: Final = frozenset({
    Code.PROGRAM_MISSING, Code.NODE_OLD, Code.CREDENTIAL_MISSING, Code.DOCKER_DOWN, Code.RUNTIME_WRONG,
    Code.PACKAGE_MISSING, Code.FILE_MISSING, Code.PERMISSION_DENIED, Code.CREDENTIAL_REFUSED, Code.ADDRESS_WRONG,
    Code.ARGUMENTS_WRONG, Code.MODULE_MISSING, Code.NOT_MCP,
})  # fmt: skip
"""Causes that last until the user has done something: no model calls again for them, and a proxy tries again ever
later."""


EXPLANATIONS: Final = Path(__file__).with_name("explanations.txt")
"""What `docs/errors.md` says of each code, so that an installed copy has it (`python docs/generate.py`)."""


def explain_code(code: Code) -> tuple[str, str]:
    """Return the title of a code, and what happened and what to do."""
    page = EXPLANATIONS.read_text(encoding="utf-8")
    found = re.search(rf"(?m)^### {code}: (.+)\n\n((?:(?!#).*\n)*)", page)
    assert found is not None
    return found[1], found[2].strip()
