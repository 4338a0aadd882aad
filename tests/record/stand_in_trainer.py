"""A stand-in for Composer's Trainer: its engine's events and counters, in its order.

What is called when was read off Composer 0.32.1, in which tests/composer runs the same
callbacks: counters grow before batch_end, epochs after the last of their batches.
"""

import datetime
import enum
import types


class Event(enum.Enum):
    INIT = "init"
    FIT_START = "fit_start"
    EPOCH_START = "epoch_start"
    BATCH_START = "batch_start"
    BATCH_END = "batch_end"
    EPOCH_END = "epoch_end"
    ITERATION_END = "iteration_end"
    FIT_END = "fit_end"


class Time:
    def __init__(self, value, unit):
        self.value = value
        self.unit = types.SimpleNamespace(value=unit)

    def __int__(self):
        return int(self.value)


class Logger:
    """Keeps what it is to upload; refuses with an error, if it has one."""

    def __init__(self):
        self.uploads = []
        self.error = None

    def upload_file(self, *, remote_file_name, file_path, overwrite):
        self.uploads.append((remote_file_name, str(file_path), overwrite))
        if self.error is not None:
            raise self.error


class Trainer:
    """WORK is called with the number of each batch; SAMPLES and TOKENS are a batch's."""

    def __init__(
        self,
        *callbacks,
        work=lambda batch: None,
        epochs=1,
        batches=10,
        samples=32,
        tokens=100,
        seconds=2.0,
        iteration_epochs=None,
        model=None,
        run_name="r",
    ):
        self.callbacks = callbacks
        self.work = work
        self.samples, self.tokens, self.seconds = samples, tokens, seconds
        self.iteration_epochs = iteration_epochs
        self.logger = Logger()
        self.timestamp = types.SimpleNamespace(
            iteration=0, epoch=0, batch=0, batch_in_epoch=0, sample=0, sample_in_epoch=0,
            token=0, token_in_epoch=0, total_wct=datetime.timedelta(),
            epoch_wct=datetime.timedelta(), batch_wct=datetime.timedelta(),
        )  # fmt: skip
        self.state = types.SimpleNamespace(
            run_name=run_name,
            model=model or types.SimpleNamespace(parameters=lambda: iter(())),
            timestamp=self.timestamp,
            max_duration=Time(epochs, "ep"),
            dataloader_len=Time(batches, "ba"),
        )
        self.run(Event.INIT)

    def run(self, event):
        for callback in self.callbacks:
            callback.run_event(event, self.state, self.logger)

    def fit(self):
        now = self.timestamp
        self.run(Event.FIT_START)
        for _ in range(self.state.max_duration.value):
            self.run(Event.EPOCH_START)
            for _ in range(self.state.dataloader_len.value):
                self.run(Event.BATCH_START)
                self.work(now.batch)
                wall = datetime.timedelta(seconds=self.seconds)
                for name in "batch", "batch_in_epoch":
                    setattr(now, name, getattr(now, name) + 1)
                for name in "sample", "sample_in_epoch":
                    setattr(now, name, getattr(now, name) + self.samples)
                for name in "token", "token_in_epoch":
                    setattr(now, name, getattr(now, name) + self.tokens)
                now.batch_wct = wall
                now.epoch_wct += wall
                now.total_wct += wall
                self.run(Event.BATCH_END)
            now.epoch += 1
            now.batch_in_epoch = now.sample_in_epoch = now.token_in_epoch = 0
            now.epoch_wct = datetime.timedelta()
            self.run(Event.EPOCH_END)
            if self.iteration_epochs and now.epoch % self.iteration_epochs == 0:
                now.iteration += 1
                self.run(Event.ITERATION_END)
        self.run(Event.FIT_END)

    def close(self):
        for callback in self.callbacks:
            callback.close(self.state, self.logger)
            callback.post_close()
