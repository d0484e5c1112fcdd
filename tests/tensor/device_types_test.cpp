// Ops on a GPU for every type of elements, contiguous and strided, with the values at which types differ: NaN with any
// bits, infinities, halves, numbers beyond the range of a narrower type.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tensor/digest_tree.h"
#include "tensor/ops/compare.h"
#include "tensor/ops/copy.h"
#include "tensor/ops/pointwise.h"
#include "tensor/philox.h"
#include "tests/support/bits.h"
#include "tests/support/other_devices.h"

namespace elinvar {
namespace {

using test::same_bits;

constexpr DType kTypes[] = {DType::f32, DType::f64, DType::bf16, DType::i32, DType::i64, DType::u8};

class DeviceTypes : public ::testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (!test::is_here(device_)) GTEST_SKIP() << "this machine has no GPU";
  }
  Tensor there(const Tensor& t) const { return t.to(device_); }
  const Device device_ = GetParam();
};
INSTANTIATE_TEST_SUITE_P(, DeviceTypes, ::testing::ValuesIn(test::devices_of_the_build()),
                         [](const auto& param) { return std::string(name_of(param.param.kind)); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceTypes);

// Whole numbers of 0 to 6, so that equal ones meet.
Tensor whole(const Shape& shape, uint64_t key, DType type) {
  Tensor x = Tensor::empty(shape);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.data<float>()[i] = static_cast<float>(philox(key, static_cast<uint32_t>(i), 0, 0, 0).v[0] % 7);
  return x.to(type);
}

// Numbers with fractions, that fit in a u8, are no ties of bfloat16's and, if the type has them, some that are special.
Tensor values(const Shape& shape, uint64_t key, DType type) {
  Tensor x = whole(shape, key, DType::f32);
  const float special[] = {std::bit_cast<float>(0xff812345u),
                           std::bit_cast<float>(0x7f800001u),
                           std::numeric_limits<float>::infinity(),
                           -0.0f,
                           3.999f,
                           200.5f};
  for (int64_t i = 0; i < x.numel(); ++i)
    if (i % 3 == 0 && (i % 2 == 1 || is_floating(type)))
      x.data<float>()[i] = special[is_floating(type) ? i / 3 % 6 : 4];
  return x.to(type);
}

// The dimensions in the opposite order, so that none can be merged with another.
Tensor strided(const Tensor& x) {
  Tensor y = x;
  for (int first = 0, last = x.ndim() - 1; first < last; ++first, --last) y = y.transpose(first, last);
  return y;
}

TEST_P(DeviceTypes, CopiesConvert) {
  for (const DType from : kTypes)
    for (const DType to : kTypes) {
      const std::string name = std::string(name_of(from)) + " to " + std::string(name_of(to));
      // What a NaN or an infinity becomes as an integer is not defined.
      const bool defined = is_floating(to) || !is_floating(from);
      const Tensor x = defined ? values({5, 3, 7, 3, 7, 7}, 1, from) : whole({5, 3, 7, 3, 7, 7}, 1, from);
      EXPECT_TRUE(same_bits(there(x).to(to).to(Device{}), x.to(to))) << name;
      EXPECT_TRUE(same_bits(strided(there(x)).to(to).to(Device{}), strided(x).to(to))) << name << ", strided";
      const Tensor flat = x.reshape({x.numel()}).slice(0, 1, x.numel() - 1);
      const Tensor flat_there = there(x).reshape({x.numel()}).slice(0, 1, x.numel() - 1);
      EXPECT_TRUE(same_bits(flat_there.to(to).to(Device{}), flat.to(to))) << name << ", not aligned";
      const auto one_dimension = [](const Tensor& t) { return t.reshape({t.numel() / 7, 7}).select(1, 2); };
      EXPECT_TRUE(same_bits(one_dimension(there(x)).to(to).to(Device{}), one_dimension(x).to(to))) << name;
      const auto three_dimensions = [](const Tensor& t) { return strided(t.reshape({15, 21, 49})); };
      EXPECT_TRUE(same_bits(three_dimensions(there(x)).to(to).to(Device{}), three_dimensions(x).to(to))) << name;
      Tensor same = Tensor::zeros(x.shape(), to), same_there = there(same);
      copy(x, same);
      copy(there(x), same_there);
      EXPECT_TRUE(same_bits(same_there.to(Device{}), same)) << name << ", in place";
      Tensor into = Tensor::zeros({7, 7, 3, 7, 3, 5}, to), into_there = there(into);
      Tensor view = strided(into), view_there = strided(into_there);
      copy(x, view);
      copy(there(x), view_there);
      EXPECT_TRUE(same_bits(into_there.to(Device{}), into)) << name << ", to strided";
    }
}

TEST_P(DeviceTypes, Fills) {
  for (const DType type : kTypes) {
    Tensor x = Tensor::zeros({6, 4, 35, 4, 3, 3}, type), x_there = there(x);
    Tensor view = strided(x).slice(3, 1, 30), view_there = strided(x_there).slice(3, 1, 30);
    fill(view, 3.0);
    fill(view_there, 3.0);
    EXPECT_TRUE(same_bits(x_there.to(Device{}), x)) << name_of(type);
    Tensor line = x.reshape({720, 42}).select(1, 3), line_there = x_there.reshape({720, 42}).select(1, 3);
    fill(line, 4.0);
    fill(line_there, 4.0);
    EXPECT_TRUE(same_bits(x_there.to(Device{}), x)) << name_of(type) << ", one dimension";
    Tensor box = x.reshape({24, 140, 9}), box_there = x_there.reshape({24, 140, 9});
    Tensor part = box.slice(1, 3, 100).slice(2, 1, 8), part_there = box_there.slice(1, 3, 100).slice(2, 1, 8);
    fill(part, 6.0);
    fill(part_there, 6.0);
    EXPECT_TRUE(same_bits(x_there.to(Device{}), x)) << name_of(type) << ", three dimensions";
    EXPECT_TRUE(same_bits(Tensor::full({1027}, 5.0, type, device_).to(Device{}), Tensor::full({1027}, 5.0, type)));
  }
}

// All pairs of a type and one of these shapes. Loops over dimensions are unrolled by four, so tests have three, five
// and six of them.
std::vector<std::pair<DType, Shape>> types_and_shapes(const std::vector<Shape>& shapes) {
  std::vector<std::pair<DType, Shape>> all;
  for (const DType type : kTypes)
    for (const Shape& shape : shapes) all.emplace_back(type, shape);
  return all;
}

TEST_P(DeviceTypes, ComparisonsAndChoices) {
  for (const auto& [type, shape] : types_and_shapes({{7, 5, 5, 5, 3, 5}, {7, 2, 3, 2, 5}, {7, 6, 5}})) {
    const Tensor a = values(shape, 1, type), b = values(shape, 2, type), row = values({5}, 3, type);
    const Tensor a_there = there(a), b_there = there(b), row_there = there(row);
    for (const auto relation : {equal, not_equal, less, less_equal}) {
      EXPECT_TRUE(same_bits(relation(a_there, b_there).to(Device{}), relation(a, b))) << name_of(type);
      EXPECT_TRUE(
          same_bits(relation(strided(a_there), strided(b_there)).to(Device{}), relation(strided(a), strided(b))))
          << name_of(type);
      EXPECT_TRUE(same_bits(relation(a_there, row_there).to(Device{}), relation(a, row))) << name_of(type);
    }
    const Tensor mask = less(whole(shape, 4, DType::i32), whole(shape, 5, DType::i32));
    EXPECT_TRUE(same_bits(where(there(mask), a_there, row_there).to(Device{}), where(mask, a, row))) << name_of(type);
    EXPECT_TRUE(same_bits(where(strided(there(mask)), strided(a_there), strided(b_there)).to(Device{}),
                          where(strided(mask), strided(a), strided(b))))
        << name_of(type);
    EXPECT_TRUE(same_bits(where(there(mask), a_there, b_there).to(Device{}), where(mask, a, b))) << name_of(type);
  }
}

TEST_P(DeviceTypes, FunctionsOfTwoTensors) {
  for (const auto& [type, shape] : types_and_shapes({{5, 5, 5, 5, 3, 7}, {5, 2, 3, 2, 7}, {5, 6, 7}})) {
    if (type != DType::f32 && type != DType::i32 && type != DType::i64) continue;
    const Tensor a = sub(whole(shape, 1, type), Tensor::full(shape, 3, type)),
                 b = add(whole(shape, 2, type), Tensor::full(shape, 1, type)), row = b.slice(0, 0, 1);
    const Tensor a_there = there(a), b_there = there(b), row_there = there(row);
    const auto check = [&](const char* name, auto op) {
      EXPECT_TRUE(same_bits(op(a_there, b_there).to(Device{}), op(a, b))) << name;
      EXPECT_TRUE(same_bits(op(strided(a_there), strided(b_there)).to(Device{}), op(strided(a), strided(b)))) << name;
      EXPECT_TRUE(same_bits(op(a_there, row_there).to(Device{}), op(a, row))) << name;
    };
    check("add", [](const Tensor& x, const Tensor& y) { return add(x, y); });
    check("sub", [](const Tensor& x, const Tensor& y) { return sub(x, y); });
    check("mul", [](const Tensor& x, const Tensor& y) { return mul(x, y); });
    check("div", [](const Tensor& x, const Tensor& y) { return div(x, y); });
    check("minimum", [](const Tensor& x, const Tensor& y) { return minimum(x, y); });
    check("maximum", [](const Tensor& x, const Tensor& y) { return maximum(x, y); });
    check("add_relu", [](const Tensor& x, const Tensor& y) { return add_relu(x, y); });
  }
}

// Any bits.
Tensor noise(int64_t count, DType type) {
  Tensor x = Tensor::empty({count}, type);
  auto* const bytes = static_cast<unsigned char*>(x.raw());
  for (int64_t i = 0; i < x.bytes(); ++i)
    bytes[i] = static_cast<unsigned char>(philox(9, static_cast<uint32_t>(i), 0, 0, 0).v[0]);
  return x;
}

// Every branch of XXH3 has its own lengths; NaNs of any bits count as one.
TEST_P(DeviceTypes, Digests) {
  for (const DType type : kTypes) {
    std::vector<Tensor> here, on_device;
    for (const int64_t bytes : {1,   2,   3,   4,   7,   8,   9,   16,   24,   40,   64,   72,    100,
                                128, 136, 160, 168, 200, 240, 248, 1024, 1032, 1088, 5000, 40000, (1 << 20) + 8}) {
      const int64_t count = (bytes + size_of(type) - 1) / size_of(type);
      for (const Tensor& x : {values({count}, 3, type), values({count + 1}, 3, type).slice(0, 1, count + 1).clone(),
                              noise(count, type)}) {
        here.push_back(x);
        on_device.push_back(there(x));
      }
    }
    const std::vector<TensorDigest> expected = digest_tree(here), got = digest_tree(on_device);
    for (size_t i = 0; i < here.size(); ++i)
      EXPECT_EQ(got[i].digest.hex(), expected[i].digest.hex()) << name_of(type) << here[i].numel();
  }
}

}  // namespace
}  // namespace elinvar
