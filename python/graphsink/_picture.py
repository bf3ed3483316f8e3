"""A program as HTML, for notebooks: its launches as boxes in the order in which they run, coloured by device."""
from __future__ import annotations

import html
import json
from typing import Any

_DEVICE = "#dbe9f9"
_HOST = "#fde6cf"
_COPY = "#f4f4f4"


def html_of(explained: str) -> str:
    """The picture of what Program.explain_json() says."""
    plan = json.loads(explained)
    tasks = {task["id"]: task for task in plan["tasks"]}
    islands = "".join(_island(i, island, tasks) for i, island in enumerate(plan["islands"]))
    whole = "the whole step is one launch" if plan["sinks_whole"] else f"{plan['launches_per_step']} launches a step"
    if any(reason["what"] == "a step runs op by op" for reason in plan["reasons"]):  # their capture failed
        whole = "runs op by op"
    if plan["loop_over_steps"]:
        whole += ", and so are several steps"
    elif plan.get("unrolled_steps", 0) > 1:
        whole += f", and so are up to {plan['unrolled_steps']} steps"
    reasons = "".join(_reason(reason) for reason in plan["reasons"])
    return (f'<div style="font-family:sans-serif;font-size:13px"><b>{html.escape(plan["target"])}</b>: {plan["nodes"]} nodes, '
            f"{whole}<div>{islands}</div>{reasons}</div>")


def _island(number: int, island: dict[str, Any], tasks: dict[int, dict[str, Any]]) -> str:
    boxes = "".join(_task(tasks[i]) for i in island["tasks"] if i in tasks)
    kind = "launch" if island["sunk"] else "op by op"
    border = "solid" if island["sunk"] else "dashed"
    return (f'<div style="border:1px {border} #888;border-radius:4px;margin:4px 0;padding:4px"><span style="color:#666">'
            f"{number}: {kind}</span> {boxes}</div>")


def _task(task: dict[str, Any]) -> str:
    colour = _COPY if task["kind"] == "copy" else _HOST if task["device"] == "host" else _DEVICE
    name = task.get("op") or task["kind"]
    title = html.escape(f"{task['device']}, {task.get('where') or 'added by the planner'}", quote=True)
    return (f'<span title="{title}" style="background:{colour};border-radius:3px;padding:1px 4px;margin:1px;'
            f'display:inline-block">{html.escape(str(name))}</span>')


def _reason(reason: dict[str, Any]) -> str:
    where = f" ({html.escape(reason['where'])})" if reason.get("where") else ""
    return (f"<div>{html.escape(reason['what'])}{where}: {html.escape(reason['why'])}. "
            f"<i>{html.escape(reason['remedy'])}</i></div>")
