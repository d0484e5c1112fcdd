#include "tests/ptx/module.h"

#include <algorithm>
#include <cstring>
#include <sstream>
#include <utility>

#include "tests/ptx/failure.h"
#include "tests/ptx/memory.h"

namespace elinvar::ptx {

Module::Module(ModuleText text) : text_(std::move(text)) {
  for (const FunctionText& function : text_.functions) by_name_[function.name] = &function;
  for (const std::string& variable : text_.variables) declare(variable);
  names_.function = [this](const std::string& name) { return by_name_.contains(name) ? find(name) : nullptr; };
}

std::shared_ptr<Function> Module::find(const std::string& name) {
  const auto text = by_name_.find(name);
  if (text == by_name_.end()) throw PtxError(text_.file + ": no function " + name);
  std::shared_ptr<Function>& function = decoded_[name];
  if (!function) function = Decoder(names_, text_, *text->second).decode();
  return function;
}

// ".extern .shared .align 16 .b8 name[]" or ".global .align 8 .b8 name[192] = {184, ..}".
void Module::declare(const std::string& variable) {
  const size_t equals = std::min(variable.find(" = "), variable.size());
  const size_t bracket = variable.find('['), space = variable.rfind(' ', bracket);
  if (bracket == std::string::npos || variable.find(" .b8 ") == std::string::npos)
    throw PtxError(text_.file + ": unknown variable " + variable.substr(0, equals));
  const std::string name = variable.substr(space + 1, bracket - space - 1);
  if (variable.starts_with(".extern .shared")) {
    names_.shared_arrays[name] = 16;
    return;
  }
  const size_t bytes = std::stoul(variable.substr(bracket + 1));
  auto* const place = static_cast<unsigned char*>(Memory::instance().allocate(bytes));
  if (variable.find(".global ") == std::string::npos || place == nullptr)
    throw PtxError(text_.file + ": unknown variable " + name);
  std::memset(place, 0, bytes);
  if (equals < variable.size()) {
    std::stringstream values(variable.substr(variable.find('{') + 1));
    std::string value;
    for (size_t k = 0; k < bytes && std::getline(values, value, ','); ++k)
      place[k] = static_cast<unsigned char>(std::stoul(value));
  }
  names_.variables[name] = reinterpret_cast<uint64_t>(place);
}

}  // namespace elinvar::ptx
