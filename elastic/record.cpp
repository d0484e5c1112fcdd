#include "elastic/record.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "tensor/check.h"
#include "tensor/file.h"

namespace elinvar {

namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {
fs::path path_of(const fs::path& directory, int64_t number) { return directory / fmt::format("{}.json", number); }
}  // namespace

bool create_record(const fs::path& directory, int64_t number, const Json& record) {
  make_directories(directory);
  return create_file(path_of(directory, number), record.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

int64_t newest_record(const fs::path& directory) {
  int64_t newest = 0;
  if (!fs::exists(directory)) return 0;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    int64_t number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (error == std::errc{} && std::string_view(end) == ".json") newest = std::max(newest, number);
  }
  return newest;
}

Json read_record(const fs::path& directory, int64_t number) {
  const fs::path path = path_of(directory, number);
  Json json = Json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) fail("{} is no JSON", path.string());
  return json;
}

}  // namespace elinvar
