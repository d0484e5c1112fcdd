#include "tools/training/environment.h"

#include <gnu/libc-version.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <xxhash.h>
#include <zmq.h>

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "tensor/base/check.h"
#include "tensor/device_description.h"
#include "tensor/isa.h"
#include "tensor/numerics.h"
#include "tensor/precision.h"
#include "tensor/stream.h"
#include "tools/training/program.h"

namespace elinvar {
namespace {

std::string zmq_version_text() {
  int major = 0, minor = 0, patch = 0;
  zmq_version(&major, &minor, &patch);
  return fmt::format("{}.{}.{}", major, minor, patch);
}

nlohmann::ordered_json libraries() {
  return {{"glibc", gnu_get_libc_version()},
          {"libstdc++", std::to_string(__GLIBCXX__)},
          {"zmq", zmq_version_text()},
          {"xxhash", fmt::format("{}.{}.{}", XXH_VERSION_MAJOR, XXH_VERSION_MINOR, XXH_VERSION_RELEASE)},
          {"nlohmann_json", fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR,
                                        NLOHMANN_JSON_VERSION_PATCH)},
          {"fmt", std::to_string(FMT_VERSION)}};
}

}  // namespace

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) return line.substr(std::min(line.size(), line.find(':') + 2));
  return "unknown";
}

nlohmann::ordered_json describe_environment(const std::vector<std::string>& command_line, Device device, bool fast) {
  utsname system{};
  uname(&system);
  nlohmann::ordered_json environment;
  environment["version"] = ELINVAR_VERSION;
  environment["numerics_version"] = kNumericsVersion;
  environment["compiler"] = __VERSION__;
  environment["build"] = ELINVAR_BUILD;
  environment["libraries"] = libraries();
  environment["binary"] = std::filesystem::read_symlink("/proc/self/exe").string();
  environment["build_id"] = build_id();
  environment["program"] = digest_of_program("/proc/self/exe");
  environment["command"] = command_line;
  environment["host"] = system.nodename;
  environment["system"] = std::string(system.sysname) + " " + system.release + " " + system.machine;
  environment["cpu"] = cpu_model();
  environment["hardware_threads"] = std::thread::hardware_concurrency();
  environment["device"] = to_string(device);
  if (const DeviceDescription gpu = describe(device); !gpu.model.empty())
    environment["gpu"] = {
        {"model", gpu.model}, {"compute", gpu.compute}, {"driver", gpu.driver}, {"runtime", gpu.runtime}};
  if (fast) environment["gpu"]["products"] = fast_products(device).by;
  environment["threads"] = cpu_stream().threads();
  environment["isa"] = name_of(current_isa());
  return environment;
}

void check_environment(const nlohmann::json& environment) {
  check(environment.is_object(), "expected an environment as an object, got {}", environment.type_name());
  const auto expect = [&](const char* name, bool required, bool (nlohmann::json::*is)() const, const char* what) {
    const auto found = environment.find(name);
    if (found == environment.end()) check(!required, "environment.{} is missing", name);
    else check(((*found).*is)(), "environment.{}: expected {}, got {}", name, what, found->dump());
  };
  using nlohmann::json;
  for (const char* name : {"isa", "device"}) expect(name, true, &json::is_string, "a text");
  expect("threads", true, &json::is_number_integer, "a number");
  for (const char* name : {"build_id", "binary", "host", "offload"}) expect(name, false, &json::is_string, "a text");
  expect("gpu", false, &json::is_object, "an object");
}

std::string build_of(const nlohmann::json& environment) { return environment.value("build_id", ""); }

std::string name_of_build(const nlohmann::json& environment) {
  return fmt::format("{} ({})", build_of(environment).substr(0, 16), environment.value("binary", "?"));
}

std::string kind_of_gpu(const nlohmann::json& environment) {
  const nlohmann::json gpu = environment.value("gpu", nlohmann::json::object());
  if (!gpu.is_object() || !gpu.contains("model")) return "cpu";
  const auto text = [&](const char* key) {
    return gpu.contains(key) && gpu[key].is_string() ? gpu[key].get<std::string>() : std::string();
  };
  return text("model") + (text("products").empty() ? "" : " with " + text("products"));
}

}  // namespace elinvar
