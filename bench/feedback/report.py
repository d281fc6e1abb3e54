"""Figures as tables."""

import statistics


def head(about):
    """What was run on what."""
    quotas = ", ".join(f"{name} {cpus:.2f}" for name, cpus in about["quotas"].items())
    text = (f"{about['evener']}, {about['nginx']}, {about['machine']}; {about['groups']}\n"
            f"nodes (CPUs): {quotas}; a request uses {about['cost_ms']:g} ms of them on average (exponential): at most "
            f"{about['capacity_per_s']:.0f}/s, and {about['capacity_burdened_per_s']:.0f}/s while "
            f"{about['burdened']} has {about['hogs']} hog(s)")
    if about["load_before"] > 0.5:
        text += f"\nthe machine is not idle (load {about['load_before']:.1f}): figures will be noisy"
    return text


def progress(round_number, mode, sample):
    """A line for each run."""
    line = sample["line"]
    return (f"round {round_number + 1}  {mode:<22} mean {line['mean_ms']:7.1f} ms  p99 {told(line['p99_ms'])} ms  "
            f"errors {line['errors'] / line['requests']:6.2%}  carried {sample['carried']:6.1f}/s  {'; '.join(sample['invalid'])}")


def told(value):
    """A figure that may be missing."""
    return "      –" if value is None else f"{value:7.1f}"


def spread(values, form="{:.0f}"):
    """The median, and the least and the most."""
    values = [value for value in values if value is not None]
    if not values:
        return "–"
    middle, least, most = (form.format(value) for value in (statistics.median(values), min(values), max(values)))
    return middle if least == most else f"{middle} ({least}–{most})"


def rows(results, plain):
    """A row for each policy: medians over the rounds, and the ratio to the policy without feedback, round by round."""
    for mode, samples in results.items():
        lines = [sample["line"] for sample in samples]
        ratios = [sample["carried"] / other["carried"] for sample, other in zip(samples, results.get(plain, []))
                  if other["carried"] > 0]
        yield [mode, spread([line["mean_ms"] for line in lines]), spread([line["p99_ms"] for line in lines]),
               spread([100 * line["errors"] / line["requests"] for line in lines], "{:.2f} %"),
               spread([sample["carried"] for sample in samples]), spread(ratios, "{:.2f}"),
               spread([1e6 * sample["director_cpu_s"] / sample["requests"] for sample in samples])]


HEADS = ["policy", "mean ms", "p99 ms", "errors", "carried /s", "× without feedback", "director's CPU µs a request"]


def tables(_about, results, plain):
    """For Markdown and for people."""
    lines = [HEADS, ["---"] * len(HEADS), *rows(results, plain)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def document(about, results, plain):
    """A page."""
    best = max((statistics.median(sample["carried"] for sample in samples) for samples in results.values()), default=0)
    without = statistics.median(sample["carried"] for sample in results[plain]) if plain in results else 0
    ratio = f"\nThe best carries {best / without:.1f} times what {plain} does.\n" if without else ""
    return f"""# What feedback is worth, live

Written by `bench/feedback/run --rounds {about['rounds']} --markdown docs/feedback-live.md` on {about['date']}; see there what it does.

```text
{head(about)}
```

Each run begins with a new director, which knows nothing: all nodes have the same weight. Agents are asked every second.
Policies take turns, in random order. Medians of {about['rounds']} rounds, in brackets the least and the most. Mean, p99 and errors: {about['line_s']:g} s at {about['line']:.0%} of the
capacity ({about['line'] * about['capacity_per_s']:.0f}/s), with the hog at work in the middle third; an answer that takes more than {about['limit_s']:g} s is an
error, and counts as one at the limit. Carried: with the hog at work, the highest rate of those tried at which 99.5 % of the
requests of {about['step_s']:g} s were answered in time.

{tables(about, results, plain)}
{ratio}
## What such a rig cannot show

- Two cores: nodes, agents, director and generator share them, so nodes have small quotas and requests are few. A step of
  a few seconds has some hundred requests; one failure more or less decides whether it was carried.
- The ratio is one of these nodes. Without feedback the slowest node decides: round-robin can carry at most the number of nodes
  times its capacity, and how much faster the others are is a choice of the rig.
- Where nearly all rates fail or succeed by a few requests, the rate carried is little more than chance: see how far the least and the
  most are from each other.
- The time limit of 2 s was chosen after a first look with 1 s, where `least-jobs` carried less still; it changes who carries what.
- Nothing is far away: reports take no time, and none is lost.
"""
