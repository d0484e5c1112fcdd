// `repro bisect`: where two runs part, down to the op. Each side's own program does the first step again that differs,
// with every op recorded (`repro trace`); the first op whose arguments agree and whose results do not is the one.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "tensor/check.h"
#include "tensor/file.h"
#include "tensor/isa.h"
#include "tools/repro/child.h"
#include "tools/repro/commands.h"
#include "tools/repro/comparison.h"
#include "tools/repro/output.h"
#include "tools/repro/reproducer.h"
#include "tools/repro/results.h"
#include "tools/repro/trace_file.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct Options {
  std::string a, b, binary_a, binary_b, out;
  bool json = false;
};

// One of the two runs, and what does it again.
struct Side {
  std::string name;  // "a", "b"
  RunRecord run;
  fs::path program;
  std::string device, isa;
  int threads = 1;
  std::vector<std::string> notes = {};  // of what could not be as it was

  Side(const std::string& given, const std::string& directory, const std::string& binary);
  Json about() const {
    return {{"run", run.path().string()}, {"program", program.string()},
            {"device", device},           {"isa", isa},
            {"threads", threads},         {"notes", notes}};
  }
  Trace trace(const fs::path& folder, int64_t step) const;
  Reproducer tensors(const fs::path& folder, int64_t step, size_t op) const;

 private:
  void run_trace(const fs::path& folder, std::vector<std::string> arguments) const;
};

// What it was computed with, where this machine has that.
Side::Side(const std::string& given, const std::string& directory, const std::string& binary)
    : name(given), run(directory), program(binary) {
  const auto& environment = run.environment();
  device = environment.value("device", "cpu");
  isa = environment.value("isa", "auto");
  threads = std::max(1, environment.value("threads", 1));
  const std::string made_by = environment.value("binary", "");
  if (binary.empty()) program = fs::path(made_by).parent_path() / "repro";
  if (binary.empty() && (made_by.empty() || !fs::exists(program))) {
    program = fs::read_symlink("/proc/self/exe");
    notes.push_back("its own program is gone: this one takes its place");
  }
  check(fs::exists(program), "there is no program {}", program.string());
  try {
    (void)parse_isa(isa);
  } catch (const UsageError&) {
    notes.push_back("this machine has no " + isa);
    isa = "auto";
  }
  try {
    (void)parse_device(device);
  } catch (const UsageError&) {
    notes.push_back("this machine has no " + device);
    device = "cpu";
  }
}

void Side::run_trace(const fs::path& folder, std::vector<std::string> arguments) const {
  arguments.insert(arguments.begin(), {"trace", run.path().string()});
  arguments.insert(arguments.end(), {"--device", device, "--isa", isa, "--threads", std::to_string(threads)});
  const Ended ended = run_program(program, arguments, folder);
  if (ended.code != 0)
    fail("{} could not do {} again (exit code {}): {}", program.string(), run.path().string(), ended.code,
         ended.last_words());
}

Trace Side::trace(const fs::path& folder, int64_t step) const {
  const fs::path out = folder / (name + ".jsonl");
  run_trace(folder, {"--step", std::to_string(step), "--out", out});
  return read_trace(out);
}

Reproducer Side::tensors(const fs::path& folder, int64_t step, size_t op) const {
  const fs::path saved = folder / (name + ".safetensors");
  run_trace(folder, {"--step", std::to_string(step), "--out", folder / (name + ".jsonl"), "--tensors",
                     std::to_string(op), "--save", saved});
  return read_reproducer(saved);
}

struct DifferentStep {
  int64_t step = 0;
  std::vector<std::string> fields;
};

// The first step that two sets of lines both have, up to `last`, and that differs.
std::optional<DifferentStep> first_difference(const std::map<int64_t, LedgerLine>& a,
                                              const std::map<int64_t, LedgerLine>& b, int64_t last = INT64_MAX) {
  for (const auto& [step, line] : a) {
    const auto other = b.find(step);
    if (step > last || other == b.end()) continue;
    const std::vector<std::string> fields = differing_fields(line, other->second);
    if (!fields.empty()) return DifferentStep{step, fields};
  }
  return std::nullopt;
}

std::map<int64_t, LedgerLine> lines_of(const Trace& trace) {
  std::map<int64_t, LedgerLine> lines;
  for (const LedgerLine& line : trace.facts) lines.emplace(line.step, line);
  return lines;
}

std::string words(const std::vector<std::string>& all) { return fmt::format("{}", fmt::join(all, ", ")); }

// What a tensor is outside of ops, if it is anything.
std::string known_as(const Trace& trace, const std::string& digest) {
  const Json& names = trace.header.at("names");
  return names.contains(digest) ? names[digest].get<std::string>() : "";
}

Json described(const std::vector<TracedValue>& values, const Trace& trace) {
  Json json = Json::array();
  for (const TracedValue& value : values) {
    Json entry = to_json(value);
    if (const std::string known = known_as(trace, value.digest); !known.empty()) entry["is"] = known;
    json.push_back(entry);
  }
  return json;
}

// The answer as an object: "verdict", "text" in words, and what belongs to it.
class Bisection {
 public:
  Bisection(const Options& o) : o_(o), a_("a", o.a, o.binary_a), b_("b", o.b, o.binary_b) {}

  Json answer() {
    const Comparison ledgers = compare(a_.run, b_.run);
    Json json = find(ledgers);
    json["ledgers"] = to_json(ledgers);
    json["a"] = a_.about();
    json["b"] = b_.about();
    std::string text = json["text"].get<std::string>();
    if (!text.empty()) text += "\n";
    json["text"] = to_text(ledgers) + text;
    return json;
  }

 private:
  Json find(const Comparison& ledgers) {
    if (ledgers.verdict == Comparison::Verdict::unknown) fail("{}", to_text(ledgers));
    if (!ledgers.divergence) return {{"verdict", "equal"}, {"text", ""}};
    if (ledgers.verdict == Comparison::Verdict::explained)
      return {{"verdict", "configuration"},
              {"text", "no op need be looked at: the settings, or the data, explain that the runs part"}};
    return with_ops({ledgers.divergence->step, ledgers.divergence->fields});
  }

  // Both sides again, up to the step in which the ledgers differ.
  Json with_ops(const DifferentStep& apart) {
    Trace a = a_.trace(scratch_.path(), apart.step), b = b_.trace(scratch_.path(), apart.step);
    const auto again = first_difference(lines_of(a), lines_of(b));
    if (!again) return transient(apart, lines_of(a), lines_of(b));
    if (again->step < apart.step) {  // the ledgers show it later than it happened
      a = a_.trace(scratch_.path(), again->step);
      b = b_.trace(scratch_.path(), again->step);
    }
    const Parting parting = first_parting(a, b);
    Json json = at_op(parting, a, b, again->step);
    json["done_again"] = {{"step", again->step},
                          {"fields", again->fields},
                          {"a_from", a.header.at("from")},
                          {"b_from", b.header.at("from")}};
    return json;
  }

  // Done again the two are the same, so one of the ledgers tells of what nobody can reproduce.
  Json transient(const DifferentStep& apart, const std::map<int64_t, LedgerLine>& a,
                 const std::map<int64_t, LedgerLine>& b) const {
    const auto wrong_a = first_difference(a_.run.lines(), a, apart.step),
               wrong_b = first_difference(b_.run.lines(), b, apart.step);
    Json json = {{"verdict", "transient"}};
    const auto tell = [](const Side& side, const DifferentStep& wrong) {
      return fmt::format("step {} of {} ({}) cannot be reproduced", wrong.step, side.run.path().string(),
                         words(wrong.fields));
    };
    if (wrong_a && wrong_b) {
      json["guilty"] = "both";
      json["text"] = fmt::format("done again, both sides agree with each other, but with neither ledger: {}; {}",
                                 tell(a_, *wrong_a), tell(b_, *wrong_b));
    } else if (!wrong_a && !wrong_b) {
      json["guilty"] = "neither";
      json["text"] = "done again, both sides agree with each other; what differs in the ledgers was not computed again";
    } else {
      const Side &guilty = wrong_a ? a_ : b_, &good = wrong_a ? b_ : a_;
      const DifferentStep& wrong = wrong_a ? *wrong_a : *wrong_b;
      json["guilty"] = guilty.name;
      json["wrong_step"] = wrong.step;
      json["wrong_fields"] = wrong.fields;
      json["text"] = fmt::format(
          "done again, both sides agree with each other and with the ledger of {}; {}: a transient "
          "fault of its machine, or a record that was changed",
          good.run.path().string(), tell(guilty, wrong));
    }
    return json;
  }

  Json at_op(const Parting& parting, const Trace& a, const Trace& b, int64_t step) {
    using What = Parting::What;
    if (parting.what == What::nothing)
      return {
          {"verdict", "unknown"},
          {"text", fmt::format("done again, step {} differs, but in no op: look at what happens between them", step)}};
    if (parting.op >= std::min(a.ops.size(), b.ops.size()))
      return {{"verdict", "program"},
              {"text",
               fmt::format("step {} has {} ops on one side and {} on the other", step, a.ops.size(), b.ops.size())}};
    const TracedOp &p = a.ops[parting.op], &q = b.ops[parting.op];
    Json op = {{"index", parting.op},
               {"name", p.name},
               {"phase", p.phase},
               {"value", parting.value},
               {"arguments", described(p.arguments, a)},
               {"results", described(p.results, a)}};
    const std::string where = fmt::format("op {} of step {}, {}: {}", parting.op, step, p.phase, p.name);
    if (parting.what == What::program)
      return {{"verdict", "program"},
              {"op", op},
              {"text",
               fmt::format("the programs differ: {} on one side is {} of {} on the other", where, q.name, q.phase)}};
    if (parting.what == What::number)
      return {
          {"verdict", "number"},
          {"op", op},
          {"text", fmt::format("no op differs before {}, which gets another {}: that comes from the configuration, or "
                               "is computed outside of ops",
                               where, parting.value)}};
    if (parting.what == What::argument) {
      std::string what = parting.value;
      for (const TracedValue& value : p.arguments)
        if (value.name == parting.value && !known_as(a, value.digest).empty()) what += ", " + known_as(a, value.digest);
      return {
          {"verdict", "input"},
          {"op", op},
          {"text", fmt::format("no op differs before {}, which gets another {}: the data differ, or the state before "
                               "the step",
                               where, what)}};
    }
    return reproducer_of(parting, op, where, step);
  }

  Json reproducer_of(const Parting& parting, const Json& op, const std::string& where, int64_t step) {
    Reproducer both = a_.tensors(scratch_.path(), step, parting.op);
    const Reproducer other = b_.tensors(scratch_.path(), step, parting.op);
    both.sides.push_back(other.sides.at(0));
    both.sides[0].about.update(a_.about());
    both.sides[1].about.update(b_.about());
    const fs::path file =
        o_.out.empty() ? fs::path(fmt::format("{}-step-{}.safetensors", both.op, step)) : fs::path(o_.out);
    write_reproducer(file, both);
    std::string text = where + "\n";
    for (const TracedValue& argument : elinvar::described(both.arguments)) text += "  " + argument.text() + "\n";
    text += fmt::format("a on {}, {}, {} threads; b on {}, {}, {} threads:\n", a_.device, a_.isa, a_.threads, b_.device,
                        b_.isa, b_.threads);
    const ResultsDifference difference = differences(both.sides[0].results, both.sides[1].results);
    text += to_text(difference);
    return {{"verdict", "op"},
            {"op", op},
            {"difference", to_json(difference)},
            {"reproducer", file.string()},
            {"text", text + fmt::format("repro replay {} runs it alone", file.string())}};
  }

  const Options& o_;
  Side a_, b_;
  ScratchFolder scratch_;
};

int bisect_command(const Options& o) {
  Json answer = Bisection(o).answer();
  const bool equal = answer.at("verdict") == "equal";
  if (o.json) {
    print_json(answer);
    return equal ? 0 : 1;
  }
  fmt::print("{}", answer["text"].get<std::string>());
  for (const char* side : {"a", "b"})
    for (const Json& note : answer[side]["notes"]) fmt::print("{}: {}\n", side, note.get<std::string>());
  return equal ? 0 : 1;
}

}  // namespace

Command add_bisect(CLI::App& repro) {
  const auto o = std::make_shared<Options>();
  CLI::App* app = repro.add_subcommand("bisect", "find the op in which two runs part, and save it");
  app->add_option("a", o->a, "a run directory")->required();
  app->add_option("b", o->b, "another one")->required();
  app->add_option("--binary-a", o->binary_a, "the repro of the build that made a (default: beside the train that did)");
  app->add_option("--binary-b", o->binary_b, "and that of b");
  app->add_option("--out", o->out, "the file for the op (default: OP-step-N.safetensors here)");
  app->add_flag("--json", o->json, "the result as JSON");
  return {app, [o] { return bisect_command(*o); }};
}

}  // namespace elinvar
