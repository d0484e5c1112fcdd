#include "tests/ptx/decoder.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <span>
#include <string_view>

#include "tests/ptx/division.h"
#include "tests/ptx/failure.h"
#include "tests/ptx/mutant.h"

namespace elinvar::ptx {
namespace {

size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

bool is_number(const std::string& s) {
  const size_t first = s[0] == '-' ? 1 : 0;
  return first < s.size() && std::isdigit(static_cast<unsigned char>(s[first]));
}

// "0f3F800000" and "0d3FF0000000000000" are the bits of floating-point numbers.
uint64_t number(const std::string& s) {
  if (s.starts_with("0f") || s.starts_with("0F") || s.starts_with("0d") || s.starts_with("0D"))
    return std::stoull(s.substr(2), nullptr, 16);
  if (s[0] == '-') return uint64_t{0} - number(s.substr(1));
  return std::stoull(s, nullptr, s.starts_with("0x") ? 16 : 10);
}

// A declaration such as ".param .align 8 .b8 name[24]".
struct Declared {
  std::string name;
  size_t bytes = 0, alignment = 1;
};
Declared declared(const std::string& text) {
  Declared d;
  size_t count = 1, unit = 0;
  for (size_t at = 0; (at = text.find(" .", at)) != std::string::npos; ++at) {
    const std::string type = text.substr(at + 2, text.find(' ', at + 1) - at - 2);
    if (type.size() >= 2 && std::string_view("busf").find(type[0]) != std::string_view::npos &&
        is_number(type.substr(1)))
      unit = std::stoul(type.substr(1)) / 8;
  }
  if (unit == 0) throw PtxError("unknown type");
  d.name = text.substr(text.rfind(' ') + 1);
  if (const size_t bracket = d.name.find('['); bracket != std::string::npos) {
    count = d.name[bracket + 1] == ']' ? 0 : std::stoul(d.name.substr(bracket + 1));
    d.name.resize(bracket);
  }
  d.bytes = unit * count;
  const bool pointer = text.find(".ptr ") != std::string::npos;  // whose .align is that of what it points to
  const size_t align = pointer ? std::string::npos : text.find(".align ");
  d.alignment = align == std::string::npos ? unit : std::stoul(text.substr(align + 7));
  return d;
}

}  // namespace

std::vector<std::string> elements_of(const std::string& operand) {
  if (operand[0] != '{') return {operand};
  return split_operands(std::string_view(operand).substr(1, operand.rfind('}') - 1));
}

Decoder::Decoder(const ModuleNames& module, const ModuleText& text, const FunctionText& function)
    : module_(module), text_(text), source_(function), function_(std::make_shared<Function>()) {
  function_->name = name_without_build(function.name);
  function_->file = text.file;
  function_->entry = function.entry;
}

std::shared_ptr<Function> Decoder::decode() {
  read_head();
  std::vector<Statement> all = statements(source_);
  apply_mutant(function_->file, function_->name, all);
  for (size_t k = 0; k < all.size(); ++k) {
    const Statement& s = all[k];
    try {
      if (s.is_label()) {
        labels_[s.text] = static_cast<int>(function_->code.size());
      } else if (s.is_directive()) {
        declare(s.text);
      } else {
        add(s);
        divide_both_ways(function_->code.back(), std::span(all).subspan(k));
      }
    } catch (const std::exception& e) {
      throw PtxError(text_.file + ".ptx:" + std::to_string(s.line) + ": " + function_->name + ": " + s.text + ": " +
                     e.what());
    }
  }
  for (const auto& [at, label] : branches_) {
    if (!labels_.contains(label)) throw PtxError(function_->name + ": no label " + label);
    function_->code[at].target = labels_[label];
  }
  Instruction end;
  end.kind = Instruction::Kind::exit;
  function_->code.push_back(end);
  function_->origins.push_back({0, "the end"});
  function_->shared_bytes = round_up(function_->shared_bytes, 16);
  return function_;
}

void Decoder::add(const Statement& s) {
  function_->code.push_back(decode_instruction(*this, s));
  function_->origins.push_back({s.line, s.text});
}

int Decoder::add_call(Call call) {
  function_->calls.push_back(std::move(call));
  return static_cast<int>(function_->calls.size()) - 1;
}

int Decoder::add_list(std::vector<int> rows) {
  function_->lists.push_back(std::move(rows));
  return static_cast<int>(function_->lists.size()) - 1;
}

void Decoder::read_head() {
  const std::string& head = source_.head;
  const size_t open = head.find('('), close = head.rfind(')');
  if (open != std::string::npos)
    for (const std::string& text : split_operands(std::string_view(head).substr(open + 1, close - open - 1))) {
      const Declared d = declared(text);
      function_->parameter_bytes = round_up(function_->parameter_bytes, d.alignment);
      function_->parameters.push_back({d.name, d.bytes, function_->parameter_bytes});
      function_->parameter_bytes += d.bytes;
    }
  if (const size_t most = head.find(".maxntid "); most != std::string::npos)
    function_->max_threads = static_cast<unsigned>(std::stoul(head.substr(most + 9)));
}

void Decoder::declare(const std::string& directive) {
  if (directive.starts_with(".pragma")) return;
  if (directive.starts_with(".reg")) return declare_registers(directive);
  const Declared d = declared(directive);
  if (directive.starts_with(".param")) {
    auto& [at, bytes] = call_arguments_.try_emplace(d.name, function_->call_bytes, 0).first->second;
    if (bytes == 0) function_->call_bytes += round_up(bytes = d.bytes, 16);
    else if (bytes != d.bytes) throw PtxError("two arguments of a call with the same name and different sizes");
  } else if (directive.starts_with(".local") && local_name_.empty()) {
    local_name_ = d.name;
    function_->local_bytes = round_up(d.bytes, 16);
  } else if (directive.starts_with(".shared")) {
    function_->shared_bytes = round_up(function_->shared_bytes, d.alignment);
    shared_[d.name] = function_->shared_bytes;
    function_->shared_bytes += d.bytes;
  } else {
    throw PtxError("unknown declaration");
  }
}

// ".reg .b32 %r<48>" declares %r0 to %r47, ".reg .b64 %SP" one register.
void Decoder::declare_registers(const std::string& directive) {
  const size_t type = directive.find('.', 1), space = directive.find(' ', type);
  const std::string kind = directive.substr(type + 1, space - type - 1);
  std::string name = directive.substr(space + 1);
  const size_t bytes = kind == "pred" ? 0 : std::max<size_t>(4, std::stoul(kind.substr(1)) / 8);
  if (bytes > 8) throw PtxError("unknown type");
  name.resize(std::min(name.find('<'), name.size()));
  const auto [known, fresh] = declared_.try_emplace(name, bytes);
  if (!fresh && known->second != bytes) throw PtxError("two registers with the same name and different widths");
}

int Decoder::new_row(size_t bytes) {
  const int row = function_->rows;
  function_->rows += bytes == 8 ? 2 : 1;
  return row;
}

int Decoder::initial_row(size_t bytes, InitialRow::What what, uint64_t value) {
  const int row = new_row(bytes);
  function_->initial.push_back({row, bytes, what, value});
  return row;
}

size_t Decoder::bytes_of(const std::string& name) const {
  if (name.find('.') != std::string::npos || name == "%laneid") return 4;
  if (const auto exact = declared_.find(name); exact != declared_.end()) return exact->second;
  std::string letters = name;
  while (!letters.empty() && std::isdigit(static_cast<unsigned char>(letters.back()))) letters.pop_back();
  const auto numbered = declared_.find(letters);
  if (numbered == declared_.end()) throw PtxError("unknown register " + name);
  return numbered->second;
}

const Decoder::Register& Decoder::find_register(const std::string& name) {
  if (const auto known = registers_.find(name); known != registers_.end()) return known->second;
  using What = InitialRow::What;
  static const std::map<std::string, std::pair<What, uint64_t>> special = {
      {"%tid.x", {What::thread, 0}},      {"%ntid.x", {What::threads, 0}},   {"%ctaid.x", {What::block, 0}},
      {"%nctaid.x", {What::blocks, 0}},   {"%laneid", {What::lane, 0}},      {"%tid.y", {What::constant, 0}},
      {"%tid.z", {What::constant, 0}},    {"%ntid.y", {What::constant, 1}},  {"%ntid.z", {What::constant, 1}},
      {"%ctaid.y", {What::constant, 0}},  {"%ctaid.z", {What::constant, 0}}, {"%nctaid.y", {What::constant, 1}},
      {"%nctaid.z", {What::constant, 1}},
  };
  Register r;
  if (const auto s = special.find(name); s != special.end()) {
    r.row = initial_row(4, s->second.first, s->second.second);
  } else {
    r.bytes = bytes_of(name);
    r.row = r.bytes == 0 ? function_->predicates++ : new_row(r.bytes);
  }
  return registers_[name] = r;
}

bool Decoder::is_register(const std::string& operand) const { return operand[0] == '%' || declared_.contains(operand); }

int Decoder::row(const std::string& operand, size_t bytes) {
  if (is_register(operand)) {
    const Register& r = find_register(operand);
    if (r.bytes != bytes)
      throw PtxError("register " + operand + " has " + std::to_string(8 * r.bytes) + " bits where " +
                     std::to_string(8 * bytes) + " are expected");
    return r.row;
  }
  if (!is_number(operand)) return symbol(operand, bytes);
  const auto [known, fresh] = constants_.try_emplace({number(operand), bytes}, 0);
  if (fresh) known->second = initial_row(bytes, InitialRow::What::constant, number(operand));
  return known->second;
}

int Decoder::predicate(const std::string& operand) {
  if (is_register(operand)) {
    const Register& r = find_register(operand);
    if (r.bytes != 0) throw PtxError("register " + operand + " is not a predicate");
    return r.row;
  }
  if (!is_number(operand)) throw PtxError("unknown predicate " + operand);
  const bool value = number(operand) != 0;
  const auto [known, fresh] = constant_predicates_.try_emplace(value, function_->predicates);
  if (fresh) function_->constant_predicates.emplace_back(function_->predicates++, value);
  return known->second;
}

// The address of something that has a name.
int Decoder::symbol(const std::string& name, size_t bytes) {
  const auto [known, fresh] = symbols_.try_emplace(name + (bytes == 8 ? " wide" : ""), 0);
  if (!fresh) return known->second;
  using What = InitialRow::What;
  const auto row_of = [&] {
    for (const Parameter& p : function_->parameters)
      if (p.name == name) return initial_row(bytes, What::parameter, p.at);
    if (name == local_name_) return initial_row(bytes, What::local, 0);
    if (const auto at = shared_.find(name); at != shared_.end()) return initial_row(bytes, What::constant, at->second);
    if (call_arguments_.contains(name)) return initial_row(bytes, What::call_argument, call_argument(name));
    if (const auto at = module_.variables.find(name); at != module_.variables.end())
      return initial_row(bytes, What::constant, at->second);
    if (module_.shared_arrays.contains(name)) return initial_row(bytes, What::dynamic_shared, 0);
    throw PtxError("unknown name " + name);
  };
  return symbols_[name + (bytes == 8 ? " wide" : "")] = row_of();
}

int Decoder::address(const std::string& operand, Instruction& i) {
  if (operand.size() < 3 || operand[0] != '[' || operand.back() != ']') throw PtxError("unknown address " + operand);
  std::string base = operand.substr(1, operand.size() - 2);
  if (const size_t plus = base.find('+'); plus != std::string::npos) {
    i.offset = static_cast<int64_t>(number(base.substr(plus + 1)));
    base.resize(plus);
  }
  const size_t bytes = is_register(base) ? bytes_of(base) : 8;
  i.wide_address = bytes == 8;
  return row(base, bytes);
}

size_t Decoder::call_argument(const std::string& name) const { return call_arguments_.at(name).first; }

std::shared_ptr<const Function> Decoder::callee(const std::string& name) const {
  std::shared_ptr<const Function> function = module_.function(name);
  if (!function) throw PtxError("no function " + name);
  return function;
}

}  // namespace elinvar::ptx
