#include "tools/config/places.h"

namespace elinvar {

const std::string& Places::operator()(const std::string& key) const {
  for (const std::string& name : {key, key.substr(0, key.find('.'))})
    if (const auto found = of_key_.find(name); found != of_key_.end()) return found->second;
  return file_;
}

}  // namespace elinvar
