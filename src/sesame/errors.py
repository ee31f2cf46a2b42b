"""The one error that users see.

Raise `SesameError` for everything that a person can mend: a missing file, a wrong column, a full disk. Its message is one
sentence that names the place (file, line, key) and the remedy; the command line prints it and exits with code 2.
"""


class SesameError(Exception):
    """A mistake outside the code: the message says where it is and what to do about it."""
