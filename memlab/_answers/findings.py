"""What a verdict on a run found."""

from memlab._answers.peaks import ProgramLine


class Finding(ProgramLine):
    """A fact at a place, with bytes and of what they are a part.  text: in words.
    since_step: of what grows, with the other keys of Growing; None of all else. setting: of
    cache that an allocator setting holds, as it was given, with setting_instead, which is to
    be written instead, and the reserved bytes that this saves in a trial; "" of all else."""

    kind: str
    text: str
    stage: str
    since_step: int | None
    steps: int
    graph: bool
    holder: str
    bytes: int
    of_bytes: int
    setting: str
    setting_instead: str
    setting_saving_bytes: int
