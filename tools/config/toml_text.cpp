#include "tools/config/toml_text.h"

#include "tensor/base/check.h"

namespace elinvar {
namespace {

constexpr int kMostNesting = 64, kMostDots = 32;

// Scans the text once, skipping comments and strings. The scan is exact for valid TOML only; that suffices, because the
// parser stops at the first error, and up to there the two agree.
class Depth {
 public:
  Depth(std::string_view text, const std::string& place) : text_(text), place_(place) {}

  void check_all() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') at_ = std::min(text_.find('\n', at_), text_.size());
      else if (c == '"' || c == '\'') pass_string(c);
      else look(c);
    }
  }

 private:
  void look(char c) {
    ++at_;
    brackets_ += (c == '[' || c == '{') - (c == ']' || c == '}');
    dots_ = c == '.' ? dots_ + 1 : std::string_view("\n=,[]{}").find(c) == std::string_view::npos ? dots_ : 0;
    line_ += c == '\n';
    check(brackets_ <= kMostNesting, "{}:{}: arrays and tables are nested deeper than {} levels", place_, line_,
          kMostNesting);
    check(dots_ <= kMostDots, "{}:{}: a name has more than {} dots", place_, line_, kMostDots);
  }

  // Skips a string of one line, or one between triple quotation marks. Strings in double quotation marks have escapes.
  void pass_string(char quote) {
    const std::string three(3, quote);
    const bool lines = text_.substr(at_).starts_with(three);
    at_ += lines ? 3 : 1;
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '\n' && !lines) return;  // invalid TOML
      line_ += c == '\n';
      if (c == '\\' && quote == '"') {
        ++at_;
        line_ += at_ < text_.size() && text_[at_] == '\n';
      } else if (lines ? text_.substr(at_).starts_with(three) : c == quote) {
        at_ += lines ? 3 : 1;
        // the content may end with up to two quotation marks
        while (lines && at_ < text_.size() && text_[at_] == quote) ++at_;
        return;
      }
    }
  }

  std::string_view text_;
  const std::string& place_;
  size_t at_ = 0;
  int brackets_ = 0, dots_ = 0, line_ = 1;
};

}  // namespace

void check_depth(std::string_view text, const std::string& place) {
  check(text.size() <= kMostTomlBytes, "{}: a configuration of {} bytes; the most is {}", place, text.size(),
        kMostTomlBytes);
  Depth(text, place).check_all();
}

toml::table parse_toml(std::string_view text, const std::string& place) {
  check_depth(text, place);
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    check(false, "{}:{}: not valid TOML: {}", place, error.source().begin.line, error.description());
    throw;
  }
}

}  // namespace elinvar
