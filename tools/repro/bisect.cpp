// `repro bisect`: finds where two runs part, down to the op. Each side's own program repeats the first differing step
// and records every op (`repro trace`). The answer is the first op whose arguments agree and whose results do not.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "tensor/base/check.h"
#include "tools/repro/commands.h"
#include "tools/repro/comparison.h"
#include "tools/repro/output.h"
#include "tools/repro/results.h"
#include "tools/repro/side.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

struct BisectOptions {
  std::string a, b, binary_a, binary_b, out;
  bool json = false;
};

struct DifferentStep {
  int64_t step = 0;
  std::vector<std::string> fields;
};

// Returns the first step up to `last` that is in both sets of lines and differs.
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

// "model.fc.weight", or for equal tensors "one of 3 equal ones: model.h.0.bias, model.h.1.bias, ..".
std::string names_text(const std::vector<std::string>& names) {
  constexpr size_t kShown = 3;
  if (names.size() < 2) return names.empty() ? "" : names[0];
  const auto shown = static_cast<ptrdiff_t>(std::min(names.size(), kShown));
  return fmt::format("one of {} equal ones: {}{}", names.size(), fmt::join(names.begin(), names.begin() + shown, ", "),
                     names.size() > kShown ? ", .." : "");
}

// A replay of one side, with its trace.
struct Again {
  ReplayEnvironment replay;
  Trace trace;
};

// Describes the values of an op on side a; adds what each tensor is outside of ops.
OrderedJson described(const std::vector<TracedValue>& values, const std::vector<TracedValue>& others, const Trace& a,
                      const Trace& b) {
  OrderedJson json = OrderedJson::array();
  for (size_t i = 0; i < values.size(); ++i) {
    json.push_back(to_json(values[i]));
    const std::vector<std::string> known =
        known_as(a, values[i].digest, b, i < others.size() ? others[i].digest : values[i].digest);
    if (!known.empty()) json.back()["is"] = known;
  }
  return json;
}

// Finds the answer, an object with "verdict", "text" in words, and further fields.
class Bisection {
 public:
  Bisection(const BisectOptions& o) : o_(o), a_("a", o.a, o.binary_a), b_("b", o.b, o.binary_b) {}

  struct Answer {
    OrderedJson json;
    int code;
  };
  Answer answer() {
    const Comparison ledgers = compare(a_.run(), b_.run());
    OrderedJson json = find(ledgers);
    json["ledgers"] = to_json(ledgers);
    json["a"] = about(a_);
    json["b"] = about(b_);
    std::string text = json["text"].get<std::string>();
    if (!text.empty()) text += "\n";
    json["text"] = to_text(ledgers) + text;
    return {json, exit_code_of(ledgers)};
  }

 private:
  static OrderedJson about(const Side& side) {
    OrderedJson environments = OrderedJson::array();
    for (const ReplayEnvironment& replay : side.environments()) environments.push_back(replay.about());
    return {{"run", side.path()}, {"ways", environments}, {"lacks", side.lacks()}};
  }

  OrderedJson find(const Comparison& ledgers) {
    if (ledgers.verdict == Comparison::Verdict::unknown) fail("{}", to_text(ledgers));
    if (!ledgers.divergence) return {{"verdict", "equal"}, {"text", ""}};
    if (ledgers.verdict == Comparison::Verdict::explained)
      return {
          {"verdict", "configuration"},
          {"text", "no op need be looked at: the settings, the data or the first state explain that the runs part"}};
    return with_ops({ledgers.divergence->step, ledgers.divergence->fields});
  }

  Again done_again(const Side& side, const ReplayEnvironment& replay, int64_t step) {
    fmt::print(stderr, "doing step {} of {} again, on {}\n", step, side.path(), replay.text());
    return {replay, side.trace(subprocess_, replay, step)};
  }

  // Replays both sides up to the step in which the ledgers differ, as their first workers computed it. If the replays
  // agree, tries the environments of the other workers in turn.
  OrderedJson with_ops(const DifferentStep& apart) {
    Again a = done_again(a_, a_.environments()[0], apart.step), b = done_again(b_, b_.environments()[0], apart.step);
    auto again = first_difference(lines_of(a.trace), lines_of(b.trace));
    for (size_t i = 1; !again && i < std::max(a_.environments().size(), b_.environments().size()); ++i)
      for (const bool first : {true, false}) {
        const Side& side = first ? a_ : b_;
        if (again || i >= side.environments().size()) continue;
        Again other = done_again(side, side.environments()[i], apart.step);
        again = first_difference(lines_of(other.trace), lines_of((first ? b : a).trace));
        if (again) (first ? a : b) = std::move(other);
      }
    if (!again) return transient(apart, lines_of(a.trace), lines_of(b.trace));
    if (again->step < apart.step) {  // the ledgers show the difference later than it happened
      a = done_again(a_, a.replay, again->step);
      b = done_again(b_, b.replay, again->step);
    }
    OrderedJson json = at_op(first_parting(a.trace, b.trace), a, b, again->step);
    json["done_again"] = {{"step", again->step},
                          {"fields", again->fields},
                          {"a", a.replay.about()},
                          {"b", b.replay.about()},
                          {"a_from", a.trace.header.at("from")},
                          {"b_from", b.trace.header.at("from")}};
    return json;
  }

  // The replays agree, so one of the ledgers records something that cannot be reproduced. Its machine is accused only
  // if the replay matched the original environment.
  OrderedJson transient(const DifferentStep& apart, const std::map<int64_t, LedgerLine>& a,
                        const std::map<int64_t, LedgerLine>& b) const {
    const auto wrong_a = first_difference(a_.run().lines(), a, apart.step),
               wrong_b = first_difference(b_.run().lines(), b, apart.step);
    const auto tell = [](const Side& side, const DifferentStep& wrong) {
      return fmt::format("step {} of {} ({}) cannot be reproduced", wrong.step, side.path(), words(wrong.fields));
    };
    OrderedJson json = {{"verdict", "transient"}};
    std::string text = "done again, both sides agree with each other";
    std::vector<std::string> lacks;
    if (wrong_a) lacks.insert(lacks.end(), a_.lacks().begin(), a_.lacks().end());
    if (wrong_b) lacks.insert(lacks.end(), b_.lacks().begin(), b_.lacks().end());
    if (wrong_a && wrong_b) {
      json["guilty"] = "both";
      text += fmt::format(", but with neither ledger: {}; {}", tell(a_, *wrong_a), tell(b_, *wrong_b));
    } else if (!wrong_a && !wrong_b) {
      json["guilty"] = "neither";
      text += "; what differs in the ledgers was not computed again";
    } else {
      const Side &guilty = wrong_a ? a_ : b_, &good = wrong_a ? b_ : a_;
      const DifferentStep& wrong = wrong_a ? *wrong_a : *wrong_b;
      json.update({{"guilty", guilty.name()}, {"wrong_step", wrong.step}, {"wrong_fields", wrong.fields}});
      text += fmt::format(" and with the ledger of {}; {}", good.path(), tell(guilty, wrong));
      if (lacks.empty()) text += ": a transient fault of its machine, or a record that was changed";
    }
    if (!lacks.empty()) {
      json["verdict"] = "unknown";
      json.erase("guilty");
      text += fmt::format(". But it was not done as it was then: {}", fmt::join(lacks, "; "));
    }
    json["text"] = text;
    return json;
  }

  OrderedJson at_op(const Parting& parting, const Again& a, const Again& b, int64_t step) {
    using What = Parting::What;
    const std::vector<TracedOp>&ours = a.trace.ops, &theirs = b.trace.ops;
    if (parting.what == What::nothing)
      return {
          {"verdict", "unknown"},
          {"text", fmt::format("done again, step {} differs, but in no op: look at what happens between them", step)}};
    if (parting.op >= std::min(ours.size(), theirs.size()))
      return {{"verdict", "program"},
              {"text",
               fmt::format("step {} has {} ops on one side and {} on the other", step, ours.size(), theirs.size())}};
    const TracedOp &p = ours[parting.op], &q = theirs[parting.op];
    OrderedJson op = {{"index", parting.op},
                      {"name", p.name},
                      {"phase", p.phase},
                      {"value", parting.value},
                      {"arguments", described(p.arguments, q.arguments, a.trace, b.trace)},
                      {"results", described(p.results, q.results, a.trace, b.trace)}};
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
      for (const OrderedJson& value : op["arguments"])
        if (value["name"] == parting.value && value.contains("is"))
          what += ", " + names_text(value["is"].get<std::vector<std::string>>());
      return {
          {"verdict", "input"},
          {"op", op},
          {"text", fmt::format("no op differs before {}, which gets another {}: the data differ, or the state before "
                               "the step",
                               where, what)}};
    }
    return reproducer_of(parting, op, where, a.replay, b.replay, step);
  }

  OrderedJson reproducer_of(const Parting& parting, const OrderedJson& op, const std::string& where,
                            const ReplayEnvironment& a, const ReplayEnvironment& b, int64_t step) {
    Reproducer both = a_.tensors(subprocess_, a, step, parting.op);
    const Reproducer other = b_.tensors(subprocess_, b, step, parting.op);
    both.sides.push_back(other.sides.at(0));
    both.sides[0].about.update(a.about());
    both.sides[1].about.update(b.about());
    const std::string file = o_.out.empty() ? fmt::format("{}-step-{}.safetensors", both.op, step) : o_.out;
    write_reproducer(file, both);
    std::string text = where + "\n";
    for (const TracedValue& argument : elinvar::described(both.arguments)) text += "  " + argument.text() + "\n";
    text += fmt::format("a on {}; b on {}:\n", a.text(), b.text());
    const ResultsDifference difference = differences(both.sides[0].results, both.sides[1].results);
    text += to_text(difference);
    return {{"verdict", "op"},
            {"op", op},
            {"difference", to_json(difference)},
            {"reproducer", file},
            {"text", text + fmt::format("repro replay {} runs it alone", file)}};
  }

  const BisectOptions& o_;
  Side a_, b_;
  Subprocess subprocess_;
};

int bisect_command(const BisectOptions& o) {
  const Bisection::Answer answer = Bisection(o).answer();
  if (o.json) {
    print_json(answer.json);
    return answer.code;
  }
  fmt::print("{}", answer.json["text"].get<std::string>());
  for (const char* side : {"a", "b"})
    for (const OrderedJson& lack : answer.json[side]["lacks"]) fmt::print("{}: {}\n", side, lack.get<std::string>());
  return answer.code;
}

}  // namespace

Command add_bisect(CLI::App& repro) {
  const auto o = std::make_shared<BisectOptions>();
  CLI::App* app = repro.add_subcommand("bisect", "find the op in which two runs part, and save it");
  app->add_option("A", o->a, "a run directory")->required();
  app->add_option("B", o->b, "another one")->required();
  app->add_option("--binary-a", o->binary_a, "the repro of the build that made a (default: beside the train that did)");
  app->add_option("--binary-b", o->binary_b, "and that of b");
  app->add_option("--out", o->out, "the file for the op (default: OP-step-N.safetensors here)");
  app->add_flag("--json", o->json, "the result as JSON");
  return {app, [o] { return bisect_command(*o); }};
}

}  // namespace elinvar
