// Checks the compiler's output for the portable GPU kernels (NUMERICS.md, rules 3 and 4). PTX must have no
// approximation, no flush to zero, no float sum by atomics, and no product or sum that may later become an fma. Machine
// code, if a disassembler is available, must have no approximating functions, and products must read shared memory in
// fours. Fast attention (attention_fast*.cu) may approximate 2^x and log2, and nothing else.
#include "tests/places.h"
#ifdef ELINVAR_PTX_FILES
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <regex>
#include <sstream>

#include "tensor/base/file.h"

namespace elinvar {
namespace {

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, at);) parts.push_back(part);
  return parts;
}

bool is_fast(const std::string& name) { return name.find("attention_fast") != std::string::npos; }

void expect_without(const std::string& name, const std::string& code, const std::regex& forbidden) {
  for (const std::string& line : split(code, '\n'))
    EXPECT_FALSE(std::regex_search(line, forbidden)) << name << ": " << line;
}

TEST(DeviceCode, PtxKeepsEveryRounding) {
  const std::regex forbidden(
      R"(\.approx|\.full|\.ftz|\b(add|sub|mul|mad|div|sqrt)\.f(32|64)\b|\b(atom|red)\S*\.f(32|64))"
      R"(|\b(ex2|lg2|sin|cos|tanh|rsqrt)\.)");
  const std::regex bases_of_two(R"(\b(ex2|lg2)\.approx\.ftz\.f32\b)");
  int64_t products = 0;
  for (const std::string& path : split(ELINVAR_PTX_FILES, ':')) {
    const std::string code = read_file(path);
    expect_without(path, is_fast(path) ? std::regex_replace(code, bases_of_two, "") : code, forbidden);
    for (size_t at = 0; (at = code.find("fma.rn.f32", at)) != std::string::npos; ++at) ++products;
  }
  EXPECT_GT(products, 100) << "this is not the code of the kernels";
}

// Returns NVIDIA's disassembler: the one that the variable ELINVAR_CUOBJDUMP names, else the one that the build found
// or that is on the PATH. Returns "" if there is none.
std::string disassembler() {
  std::string tool = "cuobjdump";
#ifdef ELINVAR_CUOBJDUMP
  tool = ELINVAR_CUOBJDUMP;
#endif
  if (const char* named = std::getenv("ELINVAR_CUOBJDUMP")) tool = named;
  return std::system(("command -v '" + tool + "' > /dev/null").c_str()) == 0 ? tool : "";
}

// Calls f(function, line) for the machine code of all kernels.
template <class F>
void each_instruction(const std::string& tool, F f) {
  const std::string command =
      "PATH=\"$(dirname '" + tool + "'):$PATH\" '" + tool + "' -sass '" ELINVAR_TENSOR_LIBRARY "'";
  const std::unique_ptr<FILE, int (*)(FILE*)> dump(popen(command.c_str(), "r"), pclose);
  ASSERT_NE(dump, nullptr);
  std::string function;
  for (char line[1 << 12]; fgets(line, sizeof line, dump.get());) {
    const std::string text = line;
    if (const size_t at = text.find("Function : "); at != std::string::npos) function = text.substr(at);
    else f(function, text);
  }
}

// Only PTX shows flushes to zero: in machine code they also occur in the compiler's own IEEE division and square root,
// after a NaN or an infinity.
TEST(DeviceCode, MachineCodeIsWhatTheSourceSays) {
  const std::string tool = disassembler();
  if (tool.empty()) GTEST_SKIP() << "there is no cuobjdump; ELINVAR_CUOBJDUMP names one";
  int64_t products = 0, fours = 0;
  each_instruction(tool, [&](const std::string& function, const std::string& line) {
    const auto has = [&](const char* text) { return line.find(text) != std::string::npos; };
    for (const char* approximate : {"MUFU.SIN", "MUFU.COS", "MUFU.TANH"})
      EXPECT_FALSE(has(approximate)) << function << line;
    for (const char* base_of_two : {"MUFU.EX2", "MUFU.LG2"})
      EXPECT_FALSE(has(base_of_two) && !is_fast(function)) << function << line;
    if (function.find("product_tiles") == std::string::npos) return;
    if (has(" FFMA ")) ++products;
    if (!has(" LDS")) return;
    EXPECT_TRUE(has(" LDS.128 ")) << "a product reads single numbers from shared memory\n" << function << line;
    ++fours;
  });
  EXPECT_GT(products, 10000) << "nothing was disassembled";
  EXPECT_LE(8 * fours, products) << "a thread multiplies eight rows by eight columns for four reads of four numbers";
}

}  // namespace
}  // namespace elinvar
#endif
