// bench: measures how fast this machine runs the engine, compared with its own peak, measured in the same run.
#include <CLI/CLI.hpp>

#include <cstdio>
#include <map>
#include <memory>

#include "tensor/base/check.h"
#include "tensor/base/reason.h"
#include "tensor/base/threads.h"
#include "tensor/isa.h"
#include "tensor/numerics.h"
#include "tensor/stream.h"
#include "tools/bench/arrangements.h"
#include "tools/bench/audit.h"
#include "tools/bench/data.h"
#include "tools/bench/decode.h"
#include "tools/bench/elastic.h"
#include "tools/bench/gpu.h"
#include "tools/bench/growth.h"
#include "tools/bench/job_configs.h"
#include "tools/bench/ledger.h"
#include "tools/bench/models.h"
#include "tools/bench/ops.h"
#include "tools/bench/report.h"
#include "tools/bench/transport.h"
#include "tools/cli/main_program.h"
#include "tools/cli/subcommands.h"
#include "tools/peak/peak.h"

using namespace elinvar;

namespace {

struct Options {
  int threads = usable_threads();
  std::string isa = "auto", device = "cpu", json, filter, path, arrangement;
  std::vector<std::string> names, networks;
  int repeat = 5, warm_up = 2, workers = 2, copies = 2, kernels = 0;
  int64_t batch = 0;
  bool recompute = false;
  Precision precision = Precision::portable;
  std::vector<int> shards;
};

// The options of `train run` for the jobs of `bench elastic`.
std::vector<std::string> options_of(const Options& o) {
  if (o.arrangement.empty()) return {};
  return {"--arrangement", o.arrangement, "--copies", std::to_string(o.copies)};
}

int finish(const Options& o, const bench::Report& report) {
  check(report.rows().size() > 0, "bench ops: no case has '{}' in its name", o.filter);
  return 0;
}

int run(int argc, char** argv) {
  Options o;
  CLI::App app{
      "Measures the engine on this machine. Figures are medians; per cent are of the peak measured in the same run.",
      "bench"};
  app.set_version_flag("--version", ELINVAR_VERSION);
  app.require_subcommand(1);
  app.fallthrough();
  app.add_option("--threads", o.threads, "CPU threads")->capture_default_str()->check(CLI::Range(1, 1024));
  app.add_option("--isa", o.isa, "instruction set: auto, scalar, avx2 or avx512")->capture_default_str();
  app.add_option("--repeat", o.repeat, "timed runs of each case")->capture_default_str()->check(CLI::Range(1, 1000));
  app.add_option("--warm-up", o.warm_up, "runs before, not timed")->capture_default_str()->check(CLI::Range(0, 1000));
  app.add_option("--json", o.json, "also write one JSON object a case to this file");
  auto* peak = app.add_subcommand("peak", "the most fused multiply-adds and bytes copied per second");
  auto* ops = app.add_subcommand("ops", "single operations");
  ops->add_option("filter", o.filter, "only cases whose name contains this");
  ops->add_option("--device", o.device, "cpu, or cuda: beside cuBLAS, if that is installed")->capture_default_str();
  auto* models = app.add_subcommand("models", "training steps of whole networks");
  models->add_option("cases", o.names, "the cases (default: all)")->check(CLI::IsMember(bench::model_names()));
  models->add_option("--batch", o.batch, "batch size (default: the case's own)")->check(CLI::Range(1, 1 << 20));
  auto* transport = app.add_subcommand("transport", "messages between two processes of this machine");
  auto* answer = app.add_subcommand("transport-answer", "the second process of `bench transport`")->group("");
  std::string listen, key;
  answer->add_option("listen", listen)->required();
  answer->add_option("key", key);
  models->add_flag("--recompute", o.recompute, "blocks keep their inputs alone and run again");
  models->add_option("--device", o.device, "cpu, or cuda: as leaves are called, and as graphs")->capture_default_str();
  models->add_option("--kernels", o.kernels, "with --device cuda: also the N kernels that take longest, by CUPTI")
      ->check(CLI::Range(0, 1000));
  const std::map<std::string, Precision> precisions{{"portable", Precision::portable},
                                                    {"exact", Precision::exact},
                                                    {"tf32", Precision::tf32},
                                                    {"bf16", Precision::bf16}};
  models
      ->add_option("--precision,--numerics", o.precision, "of products: portable or exact; on a GPU also bf16 or tf32")
      ->transform(CLI::CheckedTransformer(precisions).description(""));
  models
      ->add_option("--virtual-shards", o.shards,
                   "numbers of virtual shards, as 1,2,4: alternating steps of a network in each of them; on the CPU")
      ->delimiter(',')
      ->check(CLI::Range(1, kMostShards));
  auto* growth = app.add_subcommand("growth", "how the time of a step grows with the work");
  growth->add_option("tables", o.names, "the tables (default: all)")->check(CLI::IsMember(bench::growth_names()));
  auto* ledger = app.add_subcommand("ledger", "what the ledger costs beside a step");
  ledger->add_option("cases", o.names, "the networks (default: all)")->check(CLI::IsMember(bench::model_names()));
  auto* elastic = app.add_subcommand("elastic", "what it costs that workers join, leave and die, and checkpoints");
  elastic->add_option("sections", o.names, "join, death, checkpoint, restart, overhead (default: all)")
      ->check(CLI::IsMember(bench::elastic_sections()).description(""));
  elastic->add_option("--network", o.networks, "only with the state of this: resnet20, resnet50, gpt2")
      ->check(CLI::IsMember(bench::job_networks()).description(""))
      ->allow_extra_args(false);
  elastic->add_option("--arrangement", o.arrangement, "as of `train run`, zero=1 for example");
  elastic->add_option("--copies", o.copies, "as of `train run`")->capture_default_str()->check(CLI::Range(1, 1024));
  auto* arrangements = app.add_subcommand("arrangements", "what ZeRO, tensor parallelism and pipelines cost and save");
  arrangements->add_option("networks", o.networks, "resnet20, resnet50, gpt2 (default: gpt2)")
      ->check(CLI::IsMember(bench::job_networks()).description(""));
  arrangements->add_option("--section", o.names, "zero, pipeline, tensor, predicted (default: all)")
      ->check(CLI::IsMember(bench::arrangement_sections()).description(""))
      ->allow_extra_args(false);
  arrangements->add_option("--workers", o.workers, "workers of one thread each")
      ->capture_default_str()
      ->check(CLI::Range(2, 16));
  auto* audit = app.add_subcommand("audit", "what it costs that every so many updates are audited");
  audit->add_option("cases", o.names, "the networks (default: all)")->check(CLI::IsMember(bench::job_model_names()));
  auto* data = app.add_subcommand("data", "reading, decoding and augmenting images, and waiting for them");
  data->add_option("path", o.path, "a folder or .tar with images")->required();
  data->add_option("cases", o.names, "the cases (default: all)")->check(CLI::IsMember(bench::data_names()));
  auto* decode = app.add_subcommand("decode", "a token more of a text, with and without a cache of keys and values");
  decode->add_option("cases", o.names, "the networks (default: all)")->check(CLI::IsMember(bench::decode_names()));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return end_of_parsing(app, e, argc, argv);
  }
  if (answer->parsed()) return bench::answer_transport(listen, key);
  set_isa(parse_isa(o.isa));
  set_threads(o.threads);

  check(o.device == "cpu" || o.shards.empty(), "[bench] --virtual-shards measures on the CPU; leave out --device {}",
        o.device);
  const Device device = parse_device(o.device);
  check(device.kind == DeviceKind::cuda || o.kernels == 0,
        "[bench] --kernels lists kernels of GPUs; add --device cuda");
  check(device.kind != DeviceKind::emulated,
        "[bench] the emulated GPU's speed means nothing; use --device cpu or cuda");
  if (device.kind == DeviceKind::cuda) {
    bench::Report report(bench::gpu_peak(device), bench::gpu_title(device));
    if (!o.json.empty()) report.write_to(o.json);
    if (ops->parsed()) bench::run_ops(device, o.filter, o.repeat, report);
    if (models->parsed())
      for (const std::string& name : o.names.empty() ? bench::model_names() : o.names)
        for (const bool graphs : {false, true})
          bench::run_model(name, o.batch,
                           {.recompute = o.recompute, .device = device, .precision = o.precision, .graphs = graphs},
                           o.warm_up, o.repeat, o.kernels, report);
    return finish(o, report);
  }

  const bench::Peak measured = bench::measure_peak();
  if (peak->parsed()) {
    const double tile = bench::measure_tile();
    fmt::print("{} threads, {}: {:.1f} GFLOP/s, {:.1f} of a product's tile in cache, {:.1f} GB/s\n", o.threads,
               name_of(current_isa()), measured.gflops, tile, measured.gb_per_s);
    if (!o.json.empty())
      bench::write_json(o.json, {{{"case", "peak"},
                                  {"threads", o.threads},
                                  {"isa", name_of(current_isa())},
                                  {"peak_gflop_per_s", measured.gflops},
                                  {"tile_gflop_per_s", tile},
                                  {"copy_gbyte_per_s", measured.gb_per_s}}});
    return 0;
  }
  bench::Report report(measured, o.threads, name_of(current_isa()));
  if (!o.json.empty()) report.write_to(o.json);
  if (ops->parsed()) bench::run_ops({}, o.filter, o.repeat, report);
  if (transport->parsed()) bench::run_transport(o.repeat, report);
  const bench::TrainerOptions training{.recompute = o.recompute, .precision = o.precision};
  if (models->parsed() && o.shards.empty())
    for (const std::string& name : o.names.empty() ? bench::model_names() : o.names)
      bench::run_model(name, o.batch, training, o.warm_up, o.repeat, 0, report);
  if (models->parsed() && !o.shards.empty())
    for (const std::string& name : o.names.empty() ? bench::shardable_model_names() : o.names)
      bench::run_in_shards(name, o.batch, training, o.shards, o.warm_up, o.repeat, report);
  if (growth->parsed())
    for (const std::string& name : o.names.empty() ? bench::growth_names() : o.names)
      bench::run_growth(name, o.warm_up, o.repeat, report);
  if (audit->parsed())
    for (const std::string& name : o.names.empty() ? bench::model_names() : o.names)
      bench::run_audit(name, o.repeat, report);
  if (decode->parsed())
    for (const std::string& name : o.names.empty() ? bench::decode_names() : o.names)
      bench::run_decode(name, o.warm_up, o.repeat, report);
  if (ledger->parsed())
    for (const std::string& name : o.names.empty() ? bench::job_model_names() : o.names)
      bench::run_ledger(name, o.warm_up, o.repeat, report);
  if (elastic->parsed())
    for (const std::string& network : o.networks.empty() ? bench::job_networks() : o.networks)
      for (const std::string& section : o.names.empty() ? bench::elastic_sections() : o.names)
        bench::run_elastic(section, network, options_of(o), o.repeat, report);
  if (arrangements->parsed())
    for (const std::string& network : o.networks.empty() ? std::vector<std::string>{"gpt2"} : o.networks)
      for (const std::string& section : o.names.empty() ? bench::arrangement_sections() : o.names)
        bench::run_arrangements(section, network, o.workers, o.repeat, report);
  if (data->parsed())
    for (const std::string& name : o.names.empty() ? bench::data_names() : o.names)
      bench::run_data(name, o.path, o.threads, o.repeat, report);
  return finish(o, report);
}

}  // namespace

int main(int argc, char** argv) {
  return main_program("bench", [&] { return run(argc, argv); });
}
