#include "elastic/run/record.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tensor/base/json.h"

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

int64_t newest_record(const fs::path& directory, std::string_view extension) {
  int64_t newest = 0;
  if (!fs::exists(directory)) return 0;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    int64_t number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (error == std::errc{} && std::string_view(end) == extension) newest = std::max(newest, number);
  }
  return newest;
}

Json read_record(const fs::path& directory, int64_t number) {
  const fs::path path = path_of(directory, number);
  std::error_code error;
  if (!fs::exists(path, error)) refuse_record(directory, number, "is missing");
  const std::string text = read_file(path);
  Json json = parse_json(text);
  if (!json.is_object())
    refuse_record(directory, number, text.empty() ? "is empty" : "is damaged: it is no JSON object");
  return json;
}

void refuse_record(const fs::path& directory, int64_t number, const std::string& what_it_is) {
  fail("{} {}; once no process of the run is left, the folder {} can be removed, and the run can be resumed without it",
       path_of(directory, number).string(), what_it_is, directory.string());
}

}  // namespace elinvar
