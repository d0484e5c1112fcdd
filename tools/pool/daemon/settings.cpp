#include "tools/pool/daemon/settings.h"

#include <map>

#include "tensor/base/check.h"
#include "tools/config/table.h"

namespace elinvar::pool {
namespace {

template <class V>
void visit(V& v, PoolSettings& s) {
  v("policy", s.policy);
  v("advertise", s.advertise);
  v("train", s.train);
  v("grace", s.grace, Between{1, 3600});
  v("patience", s.patience, AtLeast{0});
  v("turn", s.turn, AtLeast{0});
  v("horizon", s.horizon, AtLeast{1});
  v("replan", s.replan, AtLeast{1});
  v("idle", s.idle, AtLeast{1});
  v("trials", s.trials);
  v("failures", s.failures, Between{1, 1000});
  v("page", s.page, Between{-1, 65535});
}

template <class V>
void visit(V& v, SourceOptions& s) {
  v("source", s.source, OneOf{{"local", "ssh", "slurm"}});
  v("hosts", s.hosts);
  v("ssh_config", s.ssh_config);
  v("slots", s.slots, Between{0, 1024});
  v("threads", s.threads, Between{0, 1024});
  v("device", s.device, OneOf{{"cpu", "cuda"}});
  v("kind", s.kind);
  v("program", s.program);
  v("partition", s.partition);
  v("minutes", s.minutes, Between{2, 100000});
  v("most", s.most, AtLeast{0});
  v("job_name", s.job_name);
  v("commands", s.commands);
}

}  // namespace

Settings parse_settings(std::string_view text, const std::string& name) {
  const TomlSource source(text, name);
  Settings settings;
  TableReader pool(source, "pool");
  visit(pool, settings.pool);
  pool.refuse_unknown_keys();
  for (const auto& [table, node] : source.root()) {
    if (table.str() == "pool") continue;
    SourceOptions& options = settings.sources.emplace_back();
    options.name = std::string(table.str());
    TableReader reader(source, options.name);
    visit(reader, options);
    reader.refuse_unknown_keys();
    check(options.source == "local" || !settings.pool.advertise.empty(),
          "{}: [{}] is not this host, so that [pool] needs advertise = \"HOST\": where others find this one",
          source.where(options.name, node), options.name);
  }
  std::map<std::string, std::string> owners;  // host to the source that has its GPUs
  for (const SourceOptions& options : settings.sources) {
    if (options.device == "cpu" || options.source == "slurm") continue;  // in Slurm each allocation has GPUs of its own
    for (const std::string& host : options.source == "ssh" ? options.hosts : std::vector<std::string>{"this host"}) {
      const auto [owner, first] = owners.emplace(host, options.name);
      check(first, "{}: [{}] and [{}] both have the GPUs of {}; one table is for all of them", name, owner->second,
            options.name, host);
    }
  }
  if (settings.sources.empty()) settings.sources.push_back({.name = "here"});
  return settings;
}

}  // namespace elinvar::pool
