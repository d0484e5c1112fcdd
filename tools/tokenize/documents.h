#pragma once
// The documents that are to become tokens: a file each, or a line each of .jsonl files.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace elinvar {

struct Documents {
  std::vector<std::string> inputs = {};                 // files, folders, .tar archives
  std::string field = "text";                           // of a line of .jsonl or .ndjson
  std::vector<std::string> include = {}, exclude = {};  // of a folder or archive (data/files.h)
};

// Calls f with each document, in the order of inputs, sorted paths, and lines. Throws Failure naming file and line.
void for_each_document(const Documents& documents, const std::function<void(std::string)>& f);

// Calls f as often as there are documents, with several at a time: some megabytes, unless one alone has more.
void for_each_batch(const Documents& documents, const std::function<void(const std::vector<std::string>&)>& f);

// "12.3 MB, 4567 documents, 8.9 MB/s" now and then on a terminal's stderr, and at the end on any.
class Tally {
 public:
  Tally();
  void add(const std::vector<std::string>& documents);
  void finish();
  int64_t documents() const { return documents_; }

 private:
  std::string text() const;
  int64_t documents_ = 0, bytes_ = 0;
  double began_, shown_ = 0;
  bool terminal_;
};

}  // namespace elinvar
