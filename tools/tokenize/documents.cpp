#include "tools/tokenize/documents.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "data/files.h"
#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tensor/base/json.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr size_t kBatchBytes = size_t{32} << 20;

bool has_lines(const std::string& path) { return path.ends_with(".jsonl") || path.ends_with(".ndjson"); }

void each_line(std::istream& in, const std::string& where, const std::string& field,
               const std::function<void(std::string)>& f) {
  int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    Json json = parse_json(line);
    if (!json.is_object()) fail("{}:{}: expected a JSON object in each line", where, number);
    const auto found = json.find(field);
    if (found == json.end() || !found->is_string())
      fail("{}:{}: expected a text in the field \"{}\" (--field); found {}", where, number, field,
           found == json.end() ? "no such field" : found->dump());
    f(std::move(found->get_ref<std::string&>()));
  }
  if (in.bad()) fail("cannot read {}", where);
}

// Returns the text of a file. Throws Failure for images, archives and the like, which have a zero byte near their
// beginning; UTF-8 does not. Stray bytes as of Latin-1 are accepted, because byte-level BPE has tokens for them.
std::string text_in(std::string contents, const std::string& where) {
  constexpr size_t kBeginning = 8192;
  if (std::string_view(contents).substr(0, kBeginning).find('\0') != std::string_view::npos)
    fail("{} is no UTF-8 text: it has zero bytes; choose files with --include or --exclude", where);
  return contents;
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

void for_each_document(const Documents& documents, const std::function<void(std::string)>& f) {
  check(!documents.inputs.empty(), "expected a file or folder of text");
  for (const std::string& input : documents.inputs) {
    std::error_code unknown;
    const bool file = fs::is_regular_file(input, unknown);
    if (file && has_lines(input)) {
      std::ifstream in(input, std::ios::binary);
      if (!in) fail("cannot open {}", input);
      each_line(in, input, documents.field, f);
    } else if (file && !input.ends_with(".tar")) {
      f(text_in(read_file(input), input));
    } else {
      const auto files = open_files(input, documents.exclude);
      for (size_t i = 0; i < files->entries().size(); ++i) {
        const std::string& path = files->entries()[i].path;
        if (!documents.include.empty() && !matches_any(path, documents.include)) continue;
        if (!has_lines(path)) {
          f(text_in(files->read(i), files->where(path)));
          continue;
        }
        std::istringstream in(files->read(i));
        each_line(in, files->where(path), documents.field, f);
      }
    }
  }
}

void for_each_batch(const Documents& documents, const std::function<void(const std::vector<std::string>&)>& f) {
  std::vector<std::string> batch;
  size_t bytes = 0;
  for_each_document(documents, [&](std::string text) {
    bytes += text.size();
    batch.push_back(std::move(text));
    if (bytes < kBatchBytes) return;
    f(batch);
    batch.clear();
    bytes = 0;
  });
  if (!batch.empty()) f(batch);
}

Tally::Tally() : began_(now()), terminal_(isatty(STDERR_FILENO)) {}

std::string Tally::text() const {
  const double megabytes = static_cast<double>(bytes_) / 1e6, seconds = now() - began_;
  return fmt::format("{:.1f} MB, {} documents, {:.1f} MB/s", megabytes, documents_,
                     seconds > 0 ? megabytes / seconds : 0.0);
}

void Tally::add(const std::vector<std::string>& documents) {
  documents_ += static_cast<int64_t>(documents.size());
  for (const std::string& text : documents) bytes_ += static_cast<int64_t>(text.size());
  if (!terminal_ || now() < shown_ + 0.5) return;
  shown_ = now();
  fmt::print(stderr, "\r\033[K{}", text());
  std::fflush(stderr);
}

void Tally::finish() { fmt::print(stderr, "{}{}\n", terminal_ ? "\r\033[K" : "", text()); }

}  // namespace elinvar
