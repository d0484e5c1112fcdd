#pragma once
// The documents to tokenize: one per file, or one per line of .jsonl files.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace elinvar {

struct Documents {
  std::vector<std::string> inputs = {};                 // files, folders, .tar archives
  std::string field = "text";                           // key of the text in .jsonl and .ndjson lines
  std::vector<std::string> include = {}, exclude = {};  // patterns for files in a folder or archive (data/files.h)
};

// Calls f with each document, in the order of inputs, then sorted paths, then lines. Throws Failure naming file and
// line, also for a file that is no text.
void for_each_document(const Documents& documents, const std::function<void(std::string)>& f);

// Calls f with batches of documents: some megabytes each, unless one document alone is larger.
void for_each_batch(const Documents& documents, const std::function<void(const std::vector<std::string>&)>& f);

// Prints "12.3 MB, 4567 documents, 8.9 MB/s" to stderr: repeatedly on a terminal, and at the end in any case.
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
