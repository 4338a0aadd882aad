"""`memlab replay`."""

from memlab._cli import kinds, laboratory, telling


def add(commands):
    command = commands.add_parser(
        "replay",
        help="say what a recorded run would need under other allocator settings",
        description="Replays a recording in a model of torch's caching allocator.  Without "
        "options it compares the model with the recording; --conf, --memory and "
        "--memory-fraction replay it under other settings or with other memory.",
    )
    command.set_defaults(command="replay", run=run)
    command.add_argument("file", help=kinds.FILE_OR_FOLDER)
    command.add_argument(
        "--conf",
        metavar="SETTINGS",
        help="as in PYTORCH_CUDA_ALLOC_CONF, such as expandable_segments:True; '' for "
        "torch's defaults (default: the recorded ones)",
    )
    command.add_argument(
        "--memory-fraction",
        type=float,
        metavar="F",
        help="limit of the process, as in torch.cuda.set_per_process_memory_fraction(F), of "
        "--memory, else of the recorded GPU's memory; garbage_collection_threshold counts "
        "from it",
    )
    laboratory.add_options(command)


def run(options):
    from memlab._lab import replay

    answer = replay.replay(
        options.file,
        options.conf,
        options.memory,
        memory_fraction=options.memory_fraction,
        device=options.device,
        rank=options.rank,
    )
    telling.answer(answer, options.json)
    return 0
