#include "data/csv.h"

#include <csv.h>

#include <algorithm>
#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/base/check.h"
#include "tensor/base/file.h"

namespace elinvar {
namespace {

constexpr size_t kPiece = size_t{1} << 20;

class CsvReader {
 public:
  using Row = std::function<void(int64_t line, std::span<const std::string> fields)>;
  CsvReader(const std::string& path, const Row& row) : path_(path), row_(row) {
    csv_init(&parser_, CSV_STRICT | CSV_STRICT_FINI);
    csv_set_delim(&parser_, path.ends_with(".tsv") ? CSV_TAB : CSV_COMMA);
    if (path.ends_with(".tsv"))
      csv_set_space_func(&parser_, [](unsigned char c) { return static_cast<int>(c == ' '); });
  }
  ~CsvReader() { csv_free(&parser_); }
  CsvReader(const CsvReader&) = delete;
  CsvReader& operator=(const CsvReader&) = delete;

  void read() {
    std::ifstream file = open_rows(path_);
    std::vector<char> piece(kPiece);
    while (file.read(piece.data(), kPiece), file.gcount() > 0)
      for (std::string_view rest(piece.data(), static_cast<size_t>(file.gcount())); !rest.empty();) {
        // Up to the end of a line at a time, so that the number of the line is known.
        const size_t count = std::min(rest.find('\n'), rest.size() - 1) + 1;
        const std::string_view line = rest.substr(0, count);
        parse(line);
        if (line.ends_with('\n')) {
          const bool empty = first_line_ == line_ && (line == "\n" || line == "\r\n");
          ++line_;
          if (std::exchange(ended_, false) || empty) first_line_ = line_;
        }
        rest.remove_prefix(count);
      }
    if (file.bad()) fail("cannot read '{}'", path_);
    if (csv_fini(&parser_, on_field, on_row, this) != 0) malformed();
    rethrow();
  }

 private:
  void parse(std::string_view text) {
    if (csv_parse(&parser_, text.data(), text.size(), on_field, on_row, this) != text.size()) malformed();
    rethrow();
  }
  [[noreturn]] void malformed() {
    fail("'{}', line {}: malformed: {}", path_, line_, csv_strerror(csv_error(&parser_)));
  }
  // Exceptions must not pass through the library, which is C.
  void rethrow() {
    if (error_) std::rethrow_exception(error_);
  }
  static void on_field(void* bytes, size_t count, void* self) {
    auto& reader = *static_cast<CsvReader*>(self);
    reader.fields_.emplace_back(static_cast<const char*>(bytes), count);
  }
  static void on_row(int, void* self) {
    auto& reader = *static_cast<CsvReader*>(self);
    try {
      if (!reader.error_) reader.row_(reader.first_line_, reader.fields_);
    } catch (...) {
      reader.error_ = std::current_exception();
    }
    reader.fields_.clear();
    reader.ended_ = true;
  }

  std::string path_;
  const Row& row_;
  csv_parser parser_ = {};
  std::vector<std::string> fields_;
  int64_t line_ = 1, first_line_ = 1;  // being read, and the first one of the row
  bool ended_ = false;                 // a row, in this line
  std::exception_ptr error_;
};

}  // namespace

std::ifstream open_rows(const std::string& path) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  (void)File::open(path);  // throws Failure unless it is a regular file: a stream would wait for a pipe
  std::ifstream file(path, std::ios::binary);
  if (!file) fail("cannot open {}", path);
  std::string begin(kByteOrderMark.size(), '\0');
  file.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  if (file && begin == kByteOrderMark) return file;
  file.clear();
  file.seekg(0);
  return file;
}

void each_csv_row(const std::string& path,
                  const std::function<void(int64_t line, std::span<const std::string> fields)>& row) {
  CsvReader(path, row).read();
}

bool is_csv_name(std::string_view path) { return path.ends_with(".csv") || path.ends_with(".tsv"); }

}  // namespace elinvar
