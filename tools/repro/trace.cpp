// `repro trace`: repeats a run up to a step, in this process alone, and records every op of that step. `repro bisect`
// runs it with each side's own program.
#include <CLI/CLI.hpp>
#include <memory>

#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tools/cli/device_options.h"
#include "tools/repro/commands.h"
#include "tools/repro/output.h"
#include "tools/repro/rerun.h"
#include "tools/trace/tracer.h"

namespace elinvar {
namespace {

using OrderedJson = nlohmann::ordered_json;

struct TraceOptions {
  std::string run, out, save;
  int64_t step = 0;
  std::optional<int64_t> from;
  std::optional<size_t> tensors;
  DeviceOptions device;
  bool json = false;
};

// Prints a summary of the trace.
void tell(const TraceOptions& o, const Trace& trace) {
  if (o.json) {
    OrderedJson json = trace.header;
    json.erase("names");
    json["ops"] = trace.ops.size();
    json["out"] = o.out;
    if (!o.save.empty()) json["save"] = o.save;
    print_json(json);
  } else {
    fmt::print("{}: {} ops of step {}, done again from step {} on {}, {}, {} threads\n", o.out, trace.ops.size(),
               o.step, trace.header.at("from").dump(), trace.header.at("device").get<std::string>(),
               trace.header.at("isa").get<std::string>(), trace.header.at("threads").dump());
  }
}

void save_op(const TraceOptions& o, const Trace& trace, const Tracer& tracer) {
  check(tracer.kept().has_value(), "--tensors {}: step {} has {} ops", *o.tensors, o.step, trace.ops.size());
  Reproducer kept = *tracer.kept();
  kept.about["step"] = o.step;
  kept.about["op"] = *o.tensors;
  kept.sides[0].about = trace.header;
  kept.sides[0].about.erase("names");
  write_reproducer(o.save, kept);
}

int trace_command(const TraceOptions& o) {
  check(o.tensors.has_value() == !o.save.empty(), "--tensors and --save go together");
  for (const std::string& written : {o.out, o.save})
    if (!written.empty()) check_replaceable(written);
  o.device.apply();
  const Device device = parse_device(o.device.device);
  const RunRecord run(o.run);
  Rerun rerun(run, device, std::min(o.step - 1, o.from.value_or(o.step - 1)));
  Trace trace;
  trace.header = {{"trace", kTraceVersion},        {"step", o.step},
                  {"from", rerun.step()},          {"device", to_string(device)},
                  {"isa", name_of(current_isa())}, {"threads", cpu_stream().threads()},
                  {"version", ELINVAR_VERSION},    {"state", digest(rerun.state()).hex()}};
  while (rerun.step() < o.step - 1) trace.facts.push_back(rerun.advance());

  OrderedJson names = OrderedJson::object();
  for (const auto& [name, tensor] : rerun.state()) names[digest(tensor).hex()].push_back(name);
  Tracer tracer(o.tensors);
  std::optional<RecordScope> recording;
  trace.facts.push_back(rerun.advance({.at =
                                           [&](const std::string& phase) {
                                             recording.reset();
                                             tracer.at(phase);
                                             if (!phase.empty()) recording.emplace(tracer);
                                           },
                                       .batch =
                                           [&](int vrank, const Batch& batch) {
                                             if (batch.samples == 0) return;
                                             const auto name = [&](const Tensor& tensor, const char* what) {
                                               names[digest(tensor).hex()].push_back(
                                                   fmt::format("{} of leaf {}", what, vrank));
                                             };
                                             name(batch.input, "input");
                                             name(batch.target, "target");
                                           }}));
  trace.header["names"] = names;
  trace.ops = tracer.take_ops();
  write_trace(o.out, trace);
  if (!o.save.empty()) save_op(o, trace, tracer);
  tell(o, trace);
  return 0;
}

}  // namespace

Command add_trace(CLI::App& repro) {
  const auto o = std::make_shared<TraceOptions>();
  CLI::App* app = repro.add_subcommand("trace", "do one step of a run again, and write every op of it down");
  app->add_option("RUN", o->run, "a run directory")->required();
  app->add_option("--step", o->step, "the update; the first one is 1")->required()->check(CLI::PositiveNumber);
  app->add_option("--from", o->from,
                  "go on from the newest checkpoint of at most so many updates; 0: from the beginning")
      ->check(CLI::NonNegativeNumber);
  app->add_option("--out", o->out, "the file to write (tools/trace/trace_file.h)")->required();
  app->add_option("--tensors", o->tensors, "the number of an op whose tensors are to be saved,");
  app->add_option("--save", o->save, "and the file for them, for repro replay");
  o->device.add_to(*app);
  app->add_flag("--json", o->json, "what was done as JSON");
  return {app, [o] { return trace_command(*o); }};
}

}  // namespace elinvar
