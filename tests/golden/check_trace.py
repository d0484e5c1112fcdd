#!/usr/bin/env python3
"""Imports traces of `train run --profile` into the trace viewer of chrome://tracing:

    python3 check_trace.py VIEWER.html RUN_DIR/profile.json...

VIEWER.html is Catapult's trace_viewer_full.html, from the folder `static` of the Python package torch-tb-profiler; a
headless Chromium runs it. It must import each trace without a warning, with every event of every thread and the names of
processes and threads. Exit code 1 if anything differs.
"""
import collections
import html
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# The viewer draws with old Polymer elements that browsers no longer support; the import does not need them.
MODEL_BEGINS = "const global=this.window||this.global;this.tr="
BEFORE = """<!DOCTYPE html><meta charset="utf-8"><body><script>
const told = {};
window.onerror = (message, file, line, column) => told.error = told.error || message + " at " + line + ":" + column;
const nothing = new Proxy(function() {}, {get: (target, key) => key === Symbol.toPrimitive ? () => '' : nothing,
                                          set: () => true, apply: () => nothing, construct: () => nothing});
window.Polymer = nothing;
document._currentScript = {ownerDocument: document};
</script><script>
"""
AFTER = """
<script>
try {
  const model = new tr.Model();
  const options = new tr.importer.ImportOptions();
  options.shiftWorldToZero = options.pruneEmptyContainers = options.showImportWarnings = false;
  const importer = new tr.importer.Import(model, options);
  importer.importTraces([%s]);
  told.warnings = model.importWarnings.map(w => w.type + ': ' + w.message);
  told.threads = model.getAllThreads().map(t => [t.parent.pid, t.parent.name || '', t.tid, t.name || '', t.sliceGroup.length]);
} catch (error) {
  told.error = told.error || String(error.stack || error);
}
document.body.textContent = 'told:' + JSON.stringify(told) + ':told';
</script>
"""


def imported(viewer, trace, folder):
    page = folder / "page.html"
    # Text of the trace must not end the script.
    page.write_text(BEFORE + viewer[viewer.index(MODEL_BEGINS):] + AFTER % json.dumps(trace).replace("</", "<\\/"))
    browser = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "google-chrome"))), None)
    if not browser:
        sys.exit("check_trace: no chromium-headless-shell; apt-get install chromium-headless-shell")
    shown = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--timeout=600000", "--dump-dom",
                            page.as_uri()], capture_output=True, text=True, check=True).stdout
    told = re.search("told:({.*}):told", shown, re.S)
    return json.loads(html.unescape(told[1])) if told else {"error": "the viewer did not run"}


def check(viewer, path, folder):
    text = path.read_text()
    events = collections.Counter()
    names, processes = {}, {}
    for event in json.loads(text)["traceEvents"]:
        place = (event["pid"], event["tid"])
        if event["ph"] == "X":
            events[place] += 1
        elif event["name"] == "thread_name":
            names[place] = event["args"]["name"]
        elif event["name"] == "process_name":
            processes[event["pid"]] = event["args"]["name"]
    expected = {place: (processes[place[0]], names[place], events[place]) for place in set(names) | set(events)}
    told = imported(viewer, text, folder)
    found = {(pid, tid): (process, name, slices) for pid, process, tid, name, slices in told.get("threads", [])}
    wrong = [told["error"]] if "error" in told else list(told["warnings"])
    for place in sorted(set(expected) | set(found)):
        if expected.get(place) != found.get(place):
            wrong.append(f"thread {place}: {found.get(place)}, expected {expected.get(place)}")
    print(f"{path}: {sum(events.values())} events of {len(expected)} threads; {'; '.join(wrong) or 'as expected'}")
    return not wrong


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as made:
        results = [check(pathlib.Path(sys.argv[1]).read_text(), pathlib.Path(p).resolve(), pathlib.Path(made))
                   for p in sys.argv[2:]]
    sys.exit(0 if all(results) else 1)
