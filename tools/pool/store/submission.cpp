#include "tools/pool/store/submission.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tools/config/config.h"
#include "tools/config/table.h"

namespace elinvar::pool {

namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

constexpr int64_t kMostText = 1 << 20;  // bytes of a configuration
constexpr size_t kMostOverrides = 100;
constexpr size_t kMostWord = 4096;  // characters
constexpr size_t kMostName = 100;
constexpr size_t kMostKinds = 100;

bool lies_in(const fs::path& path, const fs::path& folder) {
  const fs::path whole = fs::weakly_canonical(fs::absolute(path)), above = fs::weakly_canonical(fs::absolute(folder));
  return std::mismatch(above.begin(), above.end(), whole.begin(), whole.end()).first == above.end();
}

bool is_word(const std::string& text) {
  return !text.empty() && text.size() <= kMostName && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) || std::string_view("-_.+").find(static_cast<char>(c)) != std::string_view::npos;
  });
}

// Returns the text in quotes; bytes that are not valid in a message are replaced.
std::string shown(const std::string& text) {
  return Json(text.substr(0, kMostName)).dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

bool is_text(const std::string& bytes) {
  try {
    (void)Json(bytes).dump();  // throws if the bytes are not UTF-8
  } catch (const Json::exception&) {
    return false;
  }
  return std::none_of(bytes.begin(), bytes.end(), [](unsigned char c) { return c < ' ' || c == 127; });
}

// A word is a path if it looks like one, or if a file of that name exists.
bool is_path(const std::string& text) {
  std::error_code none;
  return !text.empty() && (text.find('/') != std::string::npos || fs::exists(text, none));
}

// Rejects every text that names a path in the folder, whatever the key means.
void refuse_paths_in(const fs::path& folder, const std::string& key, const toml::node& node) {
  if (const toml::table* table = node.as_table())
    for (const auto& [name, value] : *table)
      refuse_paths_in(folder, key.empty() ? std::string(name.str()) : key + "." + std::string(name.str()), value);
  if (const toml::array* array = node.as_array())
    for (const toml::node& value : *array) refuse_paths_in(folder, key, value);
  const auto* text = node.as_string();
  if (text == nullptr) return;
  if (!is_path(text->get())) return;
  bool inside = false;
  try {
    inside = lies_in(text->get(), folder);
  } catch (const fs::filesystem_error& error) {
    check(false, "{} = {}: {}", key, shown(text->get()), error.code().message());
  }
  check(!inside, "{} = \"{}\" lies in the pool's directory, where other jobs are", key, text->get());
}

}  // namespace

JobRecord checked(const Submission& s, const fs::path& pool_directory, double now) {
  check(fs::is_regular_file(s.config), "there is no configuration {}", s.config.string());
  const auto size = static_cast<int64_t>(fs::file_size(s.config));
  check(size <= kMostText, "{} has {} bytes; a configuration may have {}", s.config.string(), size, kMostText);
  check(s.overrides.size() <= kMostOverrides, "{} settings are given; {} may be", s.overrides.size(), kMostOverrides);
  for (const std::string& word : s.overrides)
    check(word.size() <= kMostWord, "--set {}...: too long; {} characters may be", word.substr(0, 40), kMostWord);

  JobRecord job;
  job.config = read_file(s.config);
  job.overrides = s.overrides;
  const Config config = parse_config(job.config, s.config.string(), s.overrides);
  job.name = s.name.empty() ? config.run.name : s.name;
  check(is_word(job.name), "{} is no name for a job: letters, digits and -_.+, {} at most", shown(job.name), kMostName);
  refuse_paths_in(pool_directory, "", TomlSource(job.config, s.config.string(), s.overrides).root());
  job.overrides.push_back("run.name=\"" + job.name + "\"");
  // The job's processes run in another directory, so its paths become absolute.
  for (const auto& [key, path] :
       {std::pair("data.path", config.data.path), std::pair("data.tokenizer", config.data.tokenizer),
        std::pair("data.cache_dir", config.data.cache_dir), std::pair("data.index_dir", config.data.index_dir)})
    if (!path.empty() && fs::path(path).is_relative())
      job.overrides.push_back(
          fmt::format("{}={}", key, TableWriter::text(fs::absolute(path).lexically_normal().string())));

  for (const auto& [option, workers] :
       {std::pair("--min", s.min_workers), std::pair("--max", s.max_workers), std::pair("--size", s.fixed_workers)})
    check(0 <= workers && workers <= kMostWorkers, "{} {}: a job has 1 to {} workers", option, workers, kMostWorkers);
  job.min_workers = s.min_workers;
  job.max_workers = s.max_workers > 0 ? s.max_workers : std::max(s.min_workers, config.run.virtual_ranks);
  job.fixed_workers = s.fixed_workers > 0 ? s.fixed_workers : job.max_workers;
  check(1 <= job.min_workers && job.min_workers <= job.fixed_workers && job.fixed_workers <= job.max_workers &&
            job.max_workers <= kMostWorkers,
        "expected 1 <= min <= size <= max <= {} workers, got {}, {} and {}", kMostWorkers, job.min_workers,
        job.fixed_workers, job.max_workers);
  check(job.max_workers <= config.run.virtual_ranks,
        "set run.virtual_ranks to at least {}, or lower --max: each worker needs one, and the configuration has {}",
        job.max_workers, config.run.virtual_ranks);
  check(s.kinds.size() <= kMostKinds, "{} kinds are given; {} may be", s.kinds.size(), kMostKinds);
  for (const std::string& kind : s.kinds)
    check(!kind.empty() && kind.size() <= kMostName && is_text(kind), "--kind: no kind of slot has the name {}",
          shown(kind));
  job.priority = s.priority;
  job.kinds = s.kinds;
  job.submitted = now;
  job.deadline = s.deadline == kNever ? kNever : now + s.deadline;
  job.batch = config.run.batch_size;
  job.steps = config.run.steps;
  job.virtual_ranks = config.run.virtual_ranks;
  job.validations.every = config.run.eval_every;
  return job;
}

double parse_duration(const std::string& text) {
  double number = 0, unit = 1;
  size_t end = 0;
  try {
    number = std::stod(text, &end);
  } catch (const std::exception&) {
    end = std::string::npos;
  }
  const std::string rest = end == std::string::npos ? "?" : text.substr(end);
  if (rest == "m") unit = 60;
  else if (rest == "h") unit = 3600;
  else if (rest == "d") unit = 86400;
  else check(rest.empty() || rest == "s", "'{}' is no duration; say 90s, 15m, 2h or 1d", text);
  check(number > 0 && number < 1e9, "'{}' is no duration", text);
  return number * unit;
}

}  // namespace elinvar::pool
