#include "tools/train/environment.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "tensor/isa.h"
#include "tensor/numerics.h"
#include "tensor/stream.h"

namespace elinvar {
namespace {

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) return line.substr(std::min(line.size(), line.find(':') + 2));
  return "unknown";
}

}  // namespace

nlohmann::ordered_json describe_environment(const std::vector<std::string>& command_line, Device device) {
  utsname system{};
  uname(&system);
  nlohmann::ordered_json environment;
  environment["version"] = ELINVAR_VERSION;
  environment["numerics_version"] = kNumericsVersion;
  environment["compiler"] = __VERSION__;
  environment["command"] = command_line;
  environment["host"] = system.nodename;
  environment["system"] = std::string(system.sysname) + " " + system.release + " " + system.machine;
  environment["cpu"] = cpu_model();
  environment["hardware_threads"] = std::thread::hardware_concurrency();
  environment["device"] = to_string(device);
  environment["threads"] = cpu_stream().threads();
  environment["isa"] = name_of(current_isa());
  return environment;
}

}  // namespace elinvar
