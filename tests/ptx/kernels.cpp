#include "tests/ptx/kernels.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>

#include "tests/places.h"
#include "tests/ptx/failure.h"
#include "tests/ptx/module.h"
#include "tests/ptx/reach.h"

namespace elinvar::ptx {
namespace {

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, at);)
    if (!part.empty()) parts.push_back(part);
  return parts;
}

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::vector<std::string> chosen_files() {
  if (const std::string folder = variable("ELINVAR_PTX_FOLDER"); !folder.empty()) {
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (entry.path().extension() == ".ptx") paths.push_back(entry.path());
    return paths;
  }
  const std::string target = variable("ELINVAR_PTX_TARGET");
  for (const PtxFiles& files : files_of_the_build())
    if (target.empty() || files.target == target) return files.paths;
  throw PtxError("ELINVAR_PTX_TARGET=" + target + ", which CMAKE_CUDA_ARCHITECTURES does not have");
}

// The modules of this process, read on demand. A kernel's name tells its file, because kernels are in unnamed
// namespaces or have parameters of types that are.
class Modules {
 public:
  static Modules& instance() {
    static auto* all = new Modules;
    return *all;
  }
  Function& find(const std::string& mangled) {
    const std::lock_guard lock(mutex_);
    const std::string name = name_without_build(mangled);
    for (const std::string& path : paths_)
      if (name.find(std::string("<").append(std::filesystem::path(path).stem()).append(">")) != std::string::npos)
        read(path);
    if (!kernels_.contains(name))
      for (const std::string& path : paths_) read(path);
    const auto kernel = kernels_.find(name);
    if (kernel == kernels_.end()) throw PtxError("no kernel " + name);
    std::shared_ptr<Function> function = kernel->second.first->find(kernel->second.second);
    Reach::instance().add(function);
    return *function;
  }

 private:
  void read(const std::string& path) {
    std::unique_ptr<Module>& module = modules_[path];
    if (module) return;
    module = std::make_unique<Module>(read_module(path));
    for (const FunctionText& function : module->text().functions)
      if (function.entry) kernels_[name_without_build(function.name)] = {module.get(), function.name};
  }

  std::mutex mutex_;
  const std::vector<std::string> paths_ = chosen_files();
  std::map<std::string, std::unique_ptr<Module>> modules_;
  std::map<std::string, std::pair<Module*, std::string>> kernels_;
};

}  // namespace

Function& find_kernel(const std::string& mangled) { return Modules::instance().find(mangled); }

size_t decode_all(const std::vector<std::string>& paths) {
  size_t count = 0;
  for (const std::string& path : paths) {
    Module module(read_module(path));
    for (const FunctionText& function : module.text().functions) {
      module.find(function.name);
      ++count;
    }
  }
  return count;
}

const std::vector<PtxFiles>& files_of_the_build() {
  static const std::vector<PtxFiles> all = [] {
    std::vector<PtxFiles> made;
    for (const std::string& target : split(ELINVAR_PTX_OF_THE_BUILD, ';')) {
      const std::vector<std::string> parts = split(target, ':');
      made.push_back({parts.at(0), {parts.begin() + 1, parts.end()}});
    }
    return made;
  }();
  return all;
}

std::vector<unsigned char> parameters_of(const Function& kernel, void* const* arguments) {
  std::vector<unsigned char> bytes(kernel.parameter_bytes);
  for (size_t k = 0; k < kernel.parameters.size(); ++k)
    std::memcpy(bytes.data() + kernel.parameters[k].at, arguments[k], kernel.parameters[k].bytes);
  return bytes;
}

}  // namespace elinvar::ptx
