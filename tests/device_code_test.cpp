// What the compiler made of the portable kernels for GPUs (NUMERICS.md, rules 3 and 4): in PTX, no approximation, no
// flush to zero, no float sum by atomics, and no product or sum that is free to become an fma later; in the machine's
// own instructions, where a disassembler is at hand, none of the functions that are approximations by themselves.
#include "tests/places.h"
#ifdef ELINVAR_PTX_FILES
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <regex>
#include <sstream>

#include "tensor/file.h"

namespace elinvar {
namespace {

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, at);) parts.push_back(part);
  return parts;
}

void expect_without(const std::string& name, const std::string& code, const std::regex& forbidden) {
  for (const std::string& line : split(code, '\n'))
    EXPECT_FALSE(std::regex_search(line, forbidden)) << name << ": " << line;
}

TEST(DeviceCode, PtxKeepsEveryRounding) {
  const std::regex forbidden(
      R"(\.approx|\.full|\.ftz|\b(add|sub|mul|mad|div|sqrt)\.f(32|64)\b|\b(atom|red)\S*\.f(32|64))"
      R"(|\b(ex2|lg2|sin|cos|tanh|rsqrt)\.)");
  int64_t products = 0;
  for (const std::string& path : split(ELINVAR_PTX_FILES, ':')) {
    const std::string code = read_file(path);
    expect_without(path, code, forbidden);
    for (size_t at = 0; (at = code.find("fma.rn.f32", at)) != std::string::npos; ++at) ++products;
  }
  EXPECT_GT(products, 100) << "this is not the code of the kernels";
}

TEST(DeviceCode, MachineCodeHasNoApproximateFunctions) {
#ifdef ELINVAR_CUOBJDUMP
  const std::unique_ptr<FILE, int (*)(FILE*)> dump(popen(ELINVAR_CUOBJDUMP " -sass " ELINVAR_TENSOR_LIBRARY, "r"),
                                                   pclose);
  ASSERT_NE(dump, nullptr);
  std::string code;
  for (char piece[1 << 16]; const size_t n = fread(piece, 1, sizeof piece, dump.get());) code.append(piece, n);
  EXPECT_NE(code.find("FFMA"), std::string::npos) << "nothing was disassembled";
  expect_without("sass", code, std::regex(R"(MUFU\.(EX2|LG2|SIN|COS|TANH)|\.FTZ)"));
#else
  GTEST_SKIP() << "cuobjdump is not installed";
#endif
}

}  // namespace
}  // namespace elinvar
#endif
