#include "tools/pool/hosts/source.h"

#include <unistd.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "tensor/base/check.h"
#include "tensor/base/threads.h"
#include "tools/pool/hosts/process.h"
#include "tools/pool/hosts/slurm.h"

namespace elinvar::pool {
namespace {

constexpr double kDriverSeconds = 60;  // seconds, for a GPU driver that starts

// The number of GPUs of this host, as the given `train` program reports them.
int gpus_of(const std::string& name, const std::string& program) {
  const ProgramOutput told = run_program({program, "devices"}, kDriverSeconds);
  if (told.code != 0) fail("[{}] {} devices does not say which GPUs there are: {}", name, program, told.err);
  int gpus = 0;
  std::istringstream lines(told.out);
  for (std::string line; std::getline(lines, line);) gpus += line.starts_with("cuda:");
  return gpus;
}

std::string kind_of(const SourceOptions& options, int threads) {
  if (!options.kind.empty()) return options.kind;
  return options.device == "cpu" ? "cpu-" + std::to_string(threads) : options.device;
}

class LocalSource final : public Source {
 public:
  LocalSource(const SourceOptions& options, const std::string& program) : program_(program) {
    const int cpus = usable_threads();
    int slots = options.slots > 0 ? options.slots : std::max(1, cpus / std::max(1, options.threads));
    if (options.device != "cpu") {
      const int gpus = gpus_of(options.name, program);
      check(gpus > 0, "[{}] device = \"{}\", but this host has no GPU; `{} devices` says why", options.name,
            options.device, program);
      check(options.slots <= gpus, "[{}] slots = {}, but this host has {} GPU{}, one for each slot", options.name,
            options.slots, gpus, gpus == 1 ? "" : "s");
      slots = options.slots > 0 ? options.slots : gpus;
    }
    const int threads = options.threads > 0 ? options.threads : std::max(1, cpus / slots);
    machine_ = {.host = "localhost",
                .lease = {},
                .kind = kind_of(options, threads),
                .device = options.device,
                .slots = slots,
                .threads = threads};
  }
  std::vector<Machine> machines(double, int) override { return {machine_}; }
  std::vector<std::string> command(const Machine&, std::vector<std::string> words) const override {
    words.at(0) = program_;
    return words;
  }
  bool this_host() const override { return true; }

 private:
  std::string program_;
  Machine machine_;
};

// ssh passes one line to a remote shell. So words may contain only characters that no shell interprets, and are quoted
// as well.
std::string quoted(const std::string& word) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,./@%*[]";
  check(!word.empty() && word.find_first_not_of(kPlain) == std::string::npos,
        "'{}' cannot be passed to another host: only letters, digits and _-+=:,./@%*[] can", word);
  return "'" + word + "'";
}

class SshSource final : public Source {
 public:
  SshSource(const SourceOptions& options, const std::string& program)
      : program_(options.program.empty() ? program : options.program), ssh_config_(options.ssh_config) {
    check(!options.hosts.empty(), "[{}] source = \"ssh\" needs hosts = [\"...\"]", options.name);
    std::set<std::string> known;
    for (const std::string& host : options.hosts) {
      check(!host.empty() && host[0] != '-', "[{}] '{}' is no host", options.name, host);
      check(known.insert(host).second, "[{}] hosts names {} twice", options.name, host);
      const int threads = std::max(1, options.threads);
      machines_.push_back({.host = host,
                           .lease = {},
                           .kind = kind_of(options, threads),
                           .device = options.device,
                           .slots = std::max(1, options.slots),
                           .threads = threads});
    }
  }
  std::vector<Machine> machines(double, int) override { return machines_; }
  std::vector<std::string> command(const Machine& machine, std::vector<std::string> words) const override {
    words.at(0) = program_;
    std::string line;
    for (const std::string& word : words) line += (line.empty() ? "exec " : " ") + quoted(word);
    // A terminal makes the remote program receive a hangup when the connection ends.
    std::vector<std::string> ssh = {"ssh", "-tt"};
    if (!ssh_config_.empty()) ssh.insert(ssh.end(), {"-F", ssh_config_});
    for (const char* option : {"BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3"})
      ssh.insert(ssh.end(), {"-o", option});
    ssh.insert(ssh.end(), {"--", machine.host, line});
    return ssh;
  }

 private:
  std::string program_, ssh_config_;
  std::vector<Machine> machines_;
};

}  // namespace

std::vector<std::string> devices_of(const Machine& machine) {
  std::vector<std::string> devices;
  for (int i = 0; i < machine.slots; ++i)
    devices.push_back(machine.device == "cpu" ? machine.device : fmt::format("{}:{}", machine.device, i));
  return devices;
}

std::unique_ptr<Source> make_source(const SourceOptions& options, const std::string& program) {
  check(options.device == "cpu" || options.device == "cuda", "[{}] device must be cpu or cuda, got {}", options.name,
        options.device);
  if (options.source == "local") return std::make_unique<LocalSource>(options, program);
  if (options.source == "ssh") return std::make_unique<SshSource>(options, program);
  check(options.source == "slurm", "[{}] source must be local, ssh or slurm, got {}", options.name, options.source);
  return std::make_unique<SlurmSource>(options, program);
}

}  // namespace elinvar::pool
