"""`memlab merge`."""

import os

from memlab._cli import kinds, telling
from memlab._errors import Error


def add(commands):
    command = commands.add_parser(
        "merge",
        help="merge the recordings of several ranks, and compare their peaks",
        description="Merges the recordings of the ranks of one run, aligns their clocks, "
        "and says which rank peaks highest and why.  More than "
        f"{kinds.FEW_RANKS} are summed up one by one, with what stands out.",
    )
    command.set_defaults(command="merge", run=run)
    command.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help=kinds.FILE + ", one of each rank, or a folder that has one of each, with the rank in "
        "its name as rank0.mlab, or a name with * or ?; or URIs of these",
    )
    command.add_argument(
        "-o",
        "--out",
        metavar="FILE",
        help="write all of them as one recording, a pickle, which report, view and torch's "
        "viewer read",
    )
    command.add_argument(
        "--jobs",
        type=kinds.count,
        metavar="N",
        help="how many of many recordings are read at once (default: one a core, at most 8)",
    )
    command.add_argument(
        "--html",
        metavar="PAGE",
        help="write the summary of the ranks, of how many ever, as a page, with links to the "
        "ranks' own",
    )
    command.add_argument("--json", action="store_true", help="for machines")


def run(options):
    from memlab import _core
    from memlab._compare import survey, survey_page
    from memlab._files import merged as merged_files
    from memlab._recording import recording

    if options.out is not None and os.path.splitext(options.out)[1] != ".pickle":
        raise Error(f"{options.out}: expected a name that ends in .pickle")
    files = list(merged_files.files(options.files))
    if options.html is not None or len(files) > kinds.FEW_RANKS and options.out is None:
        answer = survey.survey(files, jobs=options.jobs)
        if options.html is not None:
            where = survey_page.beside(options.html)
            _core.write_file(options.html, survey_page.page(answer, where))
        telling.answer(answer, options.json)
        if options.html is not None and not options.json:
            telling.say(f"\nPage: {options.html}")
        return 0
    merged = recording.merge(files)
    answer = merged.ranks()
    if options.out is not None:
        merged.save(options.out)
    telling.answer(answer, options.json)
    if options.out is not None and not options.json:
        telling.say(f"\nWrote {options.out}")
    return 0
