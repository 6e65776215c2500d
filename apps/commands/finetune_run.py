"""A fine-tuning run from the command line: its folder, its output, and its interruption."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

from polyhal import manual_seed
from polyhal.adapters import LoraSettings, add_lora
from polyhal.cli.display import count, duration, is_live, say, say_wrapped, status_line
from polyhal.cli.progress_bar import ProgressBar
from polyhal.cli.stop_request import StopRequest
from polyhal.commands.merge import write_merged
from polyhal.finetune import IGNORED, RECORD_FORMS, TokenRows, TuneOptions, Tuner, arrange, encode_record, read_records
from polyhal.hal.errors import IncompatibleFileError, NonFiniteError, SettingError, message
from polyhal.llm import ChatEncoder, LanguageModel, check_target, load, open_model
from polyhal.models import DecoderConfig, checkpoint_names
from polyhal.training.folder import RunFolder, writing
from polyhal.training.metrics import MetricsRow
from polyhal.utils.files import parse_json, write_json
from polyhal.utils.metrics import MetricsSink, TensorBoard

_RUNS = Path("runs")
_JOB = "finetune.json"
_CONTEXT = 512
Records = list[tuple[str, dict[str, Any]]]
_LORA_NAMES = {"r": "r", "rank": "r", "alpha": "lora_alpha", "dropout": "lora_dropout"}
_LIVE_INTERVAL, _LINE_INTERVAL = 1.0, 5.0
"""Seconds between readings of the loss, with a terminal that redraws its line and with another output."""


@dataclass(frozen=True, slots=True)
class FinetuneJob:
    """All settings of a run, which its checkpoints record."""

    model: str
    data: str
    lora: LoraSettings
    epochs: float
    steps: int | None
    batch_size: int
    accumulate: int
    lr: float
    warmup: int
    schedule: str
    weight_decay: float
    clip: float
    seed: int
    context: int | None
    """None for the default, until the model is known."""
    packing: bool
    learn_all: bool
    special_tokens: bool
    dtype: str | None

    def options(self, rows: TokenRows) -> TuneOptions:
        """Return the options of training on these rows. Raises ValueError."""
        batch = min(self.batch_size, len(rows))
        steps = self.steps if self.steps is not None else math.ceil(self.epochs * len(rows) / (batch * self.accumulate))
        names = ("accumulate", "lr", "warmup", "schedule", "weight_decay", "clip", "seed")
        return TuneOptions(steps=steps, batch_size=batch, **{name: getattr(self, name) for name in names})

    def to_json(self) -> dict[str, Any]:
        """Return the settings as plain data."""
        return {**{f.name: getattr(self, f.name) for f in fields(self)}, "lora": asdict(self.lora)}


def lora_settings(text: str, targets: str | None, base: str) -> LoraSettings:
    """Read `r=16,alpha=32` and names of layers. Raises SettingError."""
    given: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        try:
            given[_LORA_NAMES[name.strip()]] = float(value)
        except (KeyError, ValueError):
            raise SettingError(
                message(None, f"--lora has {part!r}", expected="r=16, alpha=32 or dropout=0.05, separated by commas")
            ) from None
    rank = given.pop("r", 16)
    names: Any = tuple(name.strip() for name in targets.split(",")) if targets else "all-linear"
    try:
        return LoraSettings(
            r=int(rank) if rank == int(rank) else 0,
            **{"lora_alpha": rank, **given},
            target_modules=names,
            base_model_name_or_path=base,
        )
    except ValueError as error:
        raise SettingError(f"--lora {text}: {error}") from None


def folder_of(job: FinetuneJob, save_dir: Path | None) -> RunFolder:
    """Return the folder of a run."""
    return RunFolder(save_dir if save_dir is not None else _RUNS / f"{Path(job.model).stem}-{Path(job.data).stem}")


def recorded(save_dir: Path) -> FinetuneJob:
    """Return the settings of the run in a folder. Raises RunFolderError, CorruptFileError and IncompatibleFileError."""
    folder = RunFolder(save_dir)
    folder.require_last()
    path = folder.last / _JOB
    if not path.exists():
        problem = f"{folder.last} was not written by polyhal finetune"
        raise IncompatibleFileError(message(None, problem, expected=f"the file {path}"))
    data = parse_json(path.read_bytes(), path)
    try:
        lora = data["lora"]
        modules: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in lora.items()}
        return FinetuneJob(**{**data, "lora": LoraSettings(**modules)})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise IncompatibleFileError(message(None, f"{path} has other settings: {error}")) from error


def check_unchanged(job: FinetuneJob, stated: Mapping[str, Any], save_dir: Path) -> None:
    """Raise SettingError for a stated option that contradicts the settings of a run."""
    known = {f.name for f in fields(job)} - {"lora"}
    values = {k: v if k not in ("model", "data") else str(Path(v).resolve()) for k, v in stated.items() if k in known}
    found = {name: getattr(job, name) for name in values}
    wanted = lora_settings(stated.get("lora", ""), stated.get("targets"), "")
    if "lora" in stated:
        values["lora"], found["lora"] = ((x.r, x.lora_alpha, x.lora_dropout) for x in (wanted, job.lora))
    if "targets" in stated:
        values["targets"], found["targets"] = wanted.target_modules, job.lora.target_modules
    for name, value in values.items():
        if value != found[name]:
            problem = f"--{name.replace('_', '-')} {value} contradicts the run in {save_dir}, which has {found[name]}"
            raise SettingError(message(None, problem, fix="leave it out, or start a new run with another --save-dir"))


def run(
    job: FinetuneJob,
    folder: RunFolder,
    device: str | None,
    *,
    resume: bool,
    overwrite: bool,
    save_every: int,
    stop_after: int | None,
    merge: Path | None,
    tensorboard: Path | None = None,
) -> bool:
    """Carry out a run. Returns False if a signal ended it early; the run is then saved.

    Raises the errors of reading the model and the data, and NonFiniteError.
    """
    console = Console(highlight=False)
    if not resume:
        folder.check(overwrite=overwrite)
    if merge is not None:
        check_target(merge)
    events = TensorBoard(tensorboard) if tensorboard is not None else None
    with events or nullcontext(), StopRequest() as stop, folder.reserved():
        context = job.context or _default_context(job.model)
        records = list(read_records(Path(job.data)))
        if not records:
            raise SettingError(message(None, f"{job.data} has no records", expected=RECORD_FORMS))
        job = replace(job, context=context)
        with status_line(console, f"loading {Path(job.model).name}"):
            loaded = load(job.model, device, job.dtype, context)
            rows = _rows(job, loaded, records, context)
        manual_seed(job.seed)
        try:
            names = add_lora(loaded.model, job.lora)
            stored = checkpoint_names(loaded.files.config)
            tuner = Tuner(loaded.model, job.lora, job.options(rows), rows, stored=stored)
        except ValueError as error:
            raise SettingError(str(error)) from error
        if resume:
            tuner.resume(folder.last)
            folder.metrics.cut(tuner.done)
        else:
            folder.claim(overwrite=overwrite)
        _print_plan(console, loaded, tuner, len(names), len(records))
        begin, first = time.perf_counter(), tuner.done
        limit = min(tuner.options.steps, tuner.done + stop_after if stop_after is not None else tuner.options.steps)
        sinks: list[MetricsSink] = [] if events is None else [events]
        _train(console, job, folder, tuner, stop, limit, save_every, sinks)
    if tuner.done < tuner.options.steps:
        command = ["polyhal", "finetune", "--resume", "--save-dir", str(folder.path)]
        say_wrapped(console, f"saved step {tuner.done} of {tuner.options.steps}; continue with")
        say(console, f"  {shlex.join(command)}")
        return not stop.requested
    seconds = time.perf_counter() - begin
    taken = f"{count(tuner.done - first, 'step')} in {duration(seconds)}; " if tuner.done > first else ""
    say_wrapped(console, f"{taken}{_losses(folder)}", "bold")
    adapter = folder.last / "adapter"
    if merge is None:
        command = [
            "polyhal",
            "chat" if loaded.files.chat_templates else "generate",
            job.model,
            "--adapter",
            str(adapter),
        ]
        say_wrapped(console, "The adapters are saved; use them with")
        say(console, f"  {shlex.join(command)}")
    else:
        write_merged(console, Path(job.model), adapter, merge, None)
    return True


def _default_context(model: str) -> int:
    return min(_CONTEXT, DecoderConfig.from_json(open_model(model).config).max_position_embeddings)


def _rows(job: FinetuneJob, loaded: LanguageModel, records: Records, context: int) -> TokenRows:
    plain = all("text" in record and "messages" not in record for _, record in records)
    chat = None
    if not plain and loaded.files.chat_templates:
        chat = ChatEncoder(loaded.tokenizer, loaded.template(), recognise_special=job.special_tokens)
    options = {"learn_all": job.learn_all, "recognise_special": job.special_tokens}
    examples = [encode_record(r, place, loaded.tokenizer, chat, **options) for place, r in records]
    rows = arrange(examples, context, packing=job.packing, split=plain)
    if not len(rows):
        problem = f"no record has tokens to learn among its first {context}; the longest has {rows.longest} tokens"
        raise SettingError(
            message(None, problem, fix=f"use --context, at most {loaded.model.config.max_position_embeddings}")
        )
    return rows


def _print_plan(console: Console, loaded: LanguageModel, tuner: Tuner, layers: int, records: int) -> None:
    trained = sum(p.numel() for p in tuner.trained)
    rows, o, files = tuner.rows, tuner.options, loaded.files
    length = rows.ids.shape[1]
    say_wrapped(
        console,
        f"{files.name} ({files.format}) on {tuner.device}: adapters of {count(layers, 'layer')} with {trained:,} weights "
        f"are trained, {files.parameters:,} weights stay as they are",
        "bold",
    )
    learned = int((rows.targets != IGNORED).sum())
    say_wrapped(
        console,
        f"{count(records, 'record')} in {count(len(rows), 'row')} of {length} tokens, {rows.filled:.0%} filled, "
        f"{learned:,} tokens to learn",
    )
    if rows.cut:
        longest = f"the longest has {rows.longest} tokens; --context sets the length of rows"
        say_wrapped(console, f"{count(rows.cut, 'record is', 'records are')} cut to fit: {longest}", "yellow")
    passes = o.steps * o.batch_size * o.accumulate / len(rows)
    rate = f"{count(o.steps, 'step')} of {count(o.batch_size * o.accumulate, 'row')}, {passes:.1f} passes over the data"
    ended = tuner.done >= o.steps
    done = f"; {'all' if ended else tuner.done} done" if tuner.done else ""
    say_wrapped(console, f"{rate}{done}.{'' if ended else ' Ctrl-C saves and stops.'}", "dim")


def _losses(folder: RunFolder) -> str:
    """Return the first and the last loss of a run, as text."""
    losses = [row.loss for row in folder.metrics.rows()]
    return f"loss {losses[0]:.3f} at first, {losses[-1]:.3f} at last" if losses else "no losses"


def _train(
    console: Console,
    job: FinetuneJob,
    folder: RunFolder,
    tuner: Tuner,
    stop: StopRequest,
    limit: int,
    save_every: int,
    sinks: Sequence[MetricsSink],
) -> None:
    """Take steps until `limit`, or until `stop` is requested; log to the folder and to all sinks, and save."""
    tokens = tuner.options.batch_size * tuner.options.accumulate * tuner.rows.ids.shape[1] * tuner.rows.filled
    interval = _LIVE_INTERVAL if is_live(console) else _LINE_INTERVAL
    begin, begin_step, shown = time.perf_counter(), tuner.done, 0.0
    if tuner.done >= limit:
        return
    with _progress(console, tuner) as show:
        while tuner.done < limit and not stop():
            rate = float(tuner.scheduler.get_last_lr()[0])
            tuner.step()
            last = tuner.done == limit or stop()
            if last or tuner.done % save_every == 0 or time.perf_counter() - shown > interval:
                loss = tuner.mean_loss()
                if not math.isfinite(loss):
                    problem = f"the loss became {loss} before step {tuner.done}"
                    raise NonFiniteError(
                        message(None, problem, fix=f"lower --lr (now {job.lr:g}); checkpoints are older")
                    )
                shown = time.perf_counter()
                speed = (tuner.done - begin_step) * tokens / max(shown - begin, 1e-9)
                with writing(folder.metrics.path):
                    row = MetricsRow(tuner.done, round(tuner.epoch, 4), loss, None, rate, round(speed, 1))
                    folder.metrics.log(row.step, row.values)
                for sink in sinks:
                    sink.log(row.step, row.values)
                show(row)
                begin, begin_step = shown, tuner.done
            if last or tuner.done % save_every == 0:
                with writing(folder.last):
                    tuner.save(folder.last)
                    write_json(folder.last / _JOB, job.to_json())


@contextmanager
def _progress(console: Console, tuner: Tuner) -> Iterator[Any]:
    """Yield a function that shows metrics: a bar on a terminal that can move its cursor, lines elsewhere."""
    if not is_live(console):
        yield lambda row: say(console, _line(row, tuner.options.steps))
        return
    columns = [TextColumn("{task.description}"), BarColumn(bar_width=None), TimeRemainingColumn()]
    with ProgressBar(*columns, console=console, expand=True) as progress:
        task = progress.add_task("compiling the first step", total=tuner.options.steps, completed=tuner.done)
        yield lambda row: progress.update(task, completed=row.step, description=_line(row, tuner.options.steps))


def _line(row: MetricsRow, steps: int) -> str:
    values: Mapping[str, Any] = {"step": f"{row.step}/{steps}", "loss": f"{row.loss:.3f}"}
    return "  ".join(f"{k} {v}" for k, v in values.items()) + f"  {row.tokens_per_s:,.0f} tok/s"
