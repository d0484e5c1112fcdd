#include "tests/ptx/text.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "tests/ptx/failure.h"

namespace elinvar::ptx {
namespace {

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

// Blanks out comments, so that lines and positions stay what they are.
void remove_comments(std::string& text) {
  for (size_t at = 0; (at = text.find("//", at)) != std::string::npos;)
    for (; at < text.size() && text[at] != '\n'; ++at) text[at] = ' ';
}

std::string with_single_spaces(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (!is_space(c)) out += c;
    else if (!out.empty() && out.back() != ' ') out += ' ';
  if (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

// Fills in the parts of an instruction.
Statement instruction(std::string text, size_t line) {
  Statement s{.text = std::move(text), .line = line, .guard = {}, .opcode = {}, .operands = {}};
  std::string_view rest = s.text;
  const auto word = [&rest] {
    const size_t end = std::min(rest.find(' '), rest.size());
    const std::string_view first = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    return first;
  };
  if (rest[0] == '@') s.guard = word().substr(1);
  s.opcode = word();
  s.operands = split_operands(rest);
  return s;
}

}  // namespace

std::vector<std::string> split_operands(std::string_view list) {
  std::vector<std::string> parts;
  size_t depth = 0, begin = 0;
  const auto add = [&](size_t end) {
    if (std::string part = with_single_spaces(list.substr(begin, end - begin)); !part.empty()) {
      if (part[0] == ' ') part.erase(0, 1);
      parts.push_back(std::move(part));
    }
    begin = end + 1;
  };
  for (size_t at = 0; at < list.size(); ++at) {
    const char c = list[at];
    if (c == '{' || c == '[' || c == '(') ++depth;
    if (c == '}' || c == ']' || c == ')') --depth;
    if (c == ',' && depth == 0) add(at);
  }
  add(list.size());
  return parts;
}

std::vector<Statement> statements(const FunctionText& function) {
  const std::string_view body = function.body;
  std::vector<Statement> all;
  size_t line = function.line;
  for (size_t at = 0; at < body.size();) {
    const char first = body[at];
    if (is_space(first) || first == '{' || first == '}') {  // the braces of scopes: names are unique all the same
      line += first == '\n';
      ++at;
      continue;
    }
    const size_t end = body.find(first == '$' ? ':' : ';', at);
    if (end == std::string_view::npos)
      throw PtxError(function.name + ": a statement without an end at line " + std::to_string(line));
    const std::string_view piece = body.substr(at, end - at);
    std::string text = with_single_spaces(piece);
    if (first == '$' || first == '.') all.push_back({std::move(text), line, {}, {}, {}});
    else all.push_back(instruction(std::move(text), line));
    line += static_cast<size_t>(std::count(piece.begin(), piece.end(), '\n'));
    at = end + 1;
  }
  return all;
}

ModuleText parse_module(std::string file, std::string text) {
  remove_comments(text);
  ModuleText module{.file = std::move(file),
                    .target = {},
                    .text = std::make_shared<const std::string>(std::move(text)),
                    .variables = {},
                    .functions = {}};
  const std::string_view all = *module.text;
  const size_t target = all.find(".target "), head = all.find(".address_size 64");
  if (target == std::string_view::npos || head == std::string_view::npos)
    throw PtxError(module.file + ": not PTX for 64-bit addresses");
  module.target = all.substr(target + 8, all.find_first_of(", \n", target + 8) - target - 8);
  size_t line = static_cast<size_t>(std::count(all.begin(), all.begin() + static_cast<ptrdiff_t>(head), '\n')) + 1;
  for (size_t at = all.find('\n', head); at < all.size();) {
    if (is_space(all[at])) {
      line += all[at++] == '\n';
      continue;
    }
    size_t end = all.find_first_of("{;", at);
    if (end == std::string_view::npos) throw PtxError(module.file + ": a directive without an end");
    std::string directive = with_single_spaces(all.substr(at, end - at));
    const bool entry = directive.find(".entry ") != std::string::npos;
    if (!entry && directive.find(".func ") == std::string::npos) {
      end = all.find(';', at);  // the values of a variable are in braces
      module.variables.push_back(with_single_spaces(all.substr(at, end - at)));
    } else if (all[end] == '{') {
      const size_t begin = end;
      for (size_t depth = 0; end < all.size(); ++end) {
        if (all[end] == '{') ++depth;
        if (all[end] == '}' && --depth == 0) break;
      }
      if (end == all.size()) throw PtxError(module.file + ": a function without an end");
      const size_t name = directive.find(entry ? ".entry " : ".func ") + (entry ? 7 : 6);
      const size_t first = line + static_cast<size_t>(std::count(all.begin() + static_cast<ptrdiff_t>(at),
                                                                 all.begin() + static_cast<ptrdiff_t>(begin), '\n'));
      module.functions.push_back({directive.substr(name, directive.find_first_of("( ", name) - name), entry, first,
                                  directive, all.substr(begin + 1, end - begin - 1)});
    }  // else a declaration of a function that is defined below
    line += static_cast<size_t>(
        std::count(all.begin() + static_cast<ptrdiff_t>(at), all.begin() + static_cast<ptrdiff_t>(end), '\n'));
    at = end + 1;
  }
  return module;
}

ModuleText read_module(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  if (!in) throw PtxError("cannot read " + path);
  return parse_module(std::filesystem::path(path).stem(), text.str());
}

std::string name_without_build(std::string_view mangled) {
  std::string out;
  for (size_t at = 0; at < mangled.size();) {
    size_t end = at, length = 0;
    for (; end < mangled.size() && std::isdigit(static_cast<unsigned char>(mangled[end])); ++end)
      length = std::min(10 * length + static_cast<size_t>(mangled[end] - '0'), mangled.size());
    constexpr std::string_view kUnnamed = "_GLOBAL__N__";
    if (end > at && mangled.substr(end, kUnnamed.size()) == kUnnamed) {
      std::string_view id = mangled.substr(end + kUnnamed.size(), length - kUnnamed.size());
      id.remove_prefix(std::min(id.find('_') + 1, id.size()));  // the hash
      id.remove_prefix(std::min(id.find('_') + 1, id.size()));  // the length of the file's name
      out.append("<").append(id.substr(0, id.find("_cu_"))).append(">");
      at = end + length;
    } else {
      out += mangled.substr(at, std::max<size_t>(end - at, 1));
      at = std::max(end, at + 1);
    }
  }
  return out;
}

}  // namespace elinvar::ptx
