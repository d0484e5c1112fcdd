// `repro replay`: runs one op alone, from a file that `repro bisect` wrote, and compares its results with those of both
// sides. Exit code 0 if they equal one side's bit for bit, 1 if they equal neither.
#include <CLI/CLI.hpp>
#include <memory>

#include "tensor/base/check.h"
#include "tools/cli/device_options.h"
#include "tools/repro/commands.h"
#include "tools/repro/output.h"
#include "tools/repro/results.h"
#include "tools/trace/reproducer.h"
#include "tools/trace/trace_file.h"

namespace elinvar {
namespace {

using OrderedJson = nlohmann::ordered_json;

struct ReplayOptions {
  std::string file;
  DeviceOptions device;
  bool json = false;
};

int replay_command(const ReplayOptions& o) {
  o.device.apply();
  const Device device = parse_device(o.device.device);
  const Reproducer r = read_reproducer(o.file);
  const TraceValues results = call(r, device);
  OrderedJson json = {{"op", r.op},
                      {"about", r.about},
                      {"device", to_string(device)},
                      {"isa", name_of(current_isa())},
                      {"threads", cpu_stream().threads()},
                      {"sides", OrderedJson::object()}};
  std::string text = r.op;
  if (r.about.contains("phase")) text += ", " + r.about["phase"].get<std::string>();
  text += fmt::format(", on {}, {}, {} threads\n", to_string(device), name_of(current_isa()), cpu_stream().threads());
  for (const TracedValue& argument : described(r.arguments)) text += fmt::format("  {}\n", argument.text());
  bool anybody = false;
  for (size_t i = 0; i < r.sides.size(); ++i) {
    const ResultsDifference difference = differences(results, r.sides[i].results);
    anybody = anybody || difference.none();
    json["sides"][kSides[i]] = {
        {"about", r.sides[i].about}, {"equal", difference.none()}, {"difference", to_json(difference)}};
    text +=
        fmt::format("{}: {}\n{}", kSides[i], difference.none() ? "the same bits" : "other bits", to_text(difference));
  }
  if (o.json) print_json(json);
  else fmt::print("{}", text);
  return anybody ? 0 : 1;
}

}  // namespace

Command add_replay(CLI::App& repro) {
  const auto o = std::make_shared<ReplayOptions>();
  CLI::App* app = repro.add_subcommand("replay", "run one op alone, from a file that bisect wrote");
  app->add_option("FILE", o->file, "the .safetensors file")->required();
  o->device.add_to(*app);
  app->add_flag("--json", o->json, "the result as JSON");
  return {app, [o] { return replay_command(*o); }};
}

}  // namespace elinvar
