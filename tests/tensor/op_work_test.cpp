// The work that ops report to a recorder: floating-point operations of products, and bytes of tensors.
#include <gtest/gtest.h>

#include "tensor/ops/attention.h"
#include "tensor/ops/conv2d.h"
#include "tensor/ops/matmul.h"
#include "tensor/ops/pointwise.h"
#include "tensor/trace.h"

namespace elinvar {
namespace {

// Records the work of the last op.
struct Works final : Recorder {
  void begins(const AnyOp&, const TraceValues&) override {}
  void ends(const TraceValues&, const OpWork& done) override { work = done; }
  OpWork work;
};

Tensor zeros(const Shape& shape) { return Tensor::zeros(shape); }

class OpWorkTest : public ::testing::Test {
 protected:
  Works told_;
  const RecordScope recording_{told_};
};

TEST_F(OpWorkTest, OfMatrixProducts) {
  (void)matmul(zeros({5, 7}), zeros({7, 3}));
  EXPECT_EQ(told_.work.flop, 2 * 5 * 7 * 3);
  EXPECT_EQ(told_.work.bytes, 4 * (5 * 7 + 7 * 3 + 5 * 3));
  (void)matmul(zeros({4, 1, 5, 7}), zeros({2, 7, 3}));
  EXPECT_EQ(told_.work.flop, 4 * 2 * 2 * 5 * 7 * 3);
}

TEST_F(OpWorkTest, OfConvolutions) {
  const ConvOptions options{.stride_h = 2, .pad_h = 1, .pad_w = 1, .groups = 2};
  const double conv = 2.0 * (2 * 4 * 9 * 6) * (3 * 3 * 2);  // output (2, 4, 9, 6), filters of 3 x 3 x 4/2
  (void)conv2d(zeros({2, 8, 9, 4}), zeros({6, 3, 3, 2}), {}, options);
  EXPECT_EQ(told_.work.flop, conv);
  (void)conv2d_grad_input(zeros({2, 4, 9, 6}), zeros({6, 3, 3, 2}), {2, 8, 9, 4}, options);
  EXPECT_EQ(told_.work.flop, conv);
  (void)conv2d_grad_filter(zeros({2, 4, 9, 6}), zeros({2, 8, 9, 4}), {6, 3, 3, 2}, options);
  EXPECT_EQ(told_.work.flop, conv);
}

TEST_F(OpWorkTest, OfAttention) {
  const Tensor q = zeros({2, 3, 4, 8}), kv = zeros({2, 5, 2, 8}), qkv = zeros({2, 3, 3, 4, 8});
  const double pair = 2 * (2 * 4 * 8);  // one query of all heads with one key
  const AttentionResult causal = attention(q, kv, kv, true, 0.0);
  EXPECT_EQ(told_.work.flop, 2 * pair * (3 + 4 + 5));  // the keys visible to the queries
  (void)attention_backward(q, q, kv, kv, causal, true, 0.0);
  EXPECT_EQ(told_.work.flop, 5 * pair * (3 + 4 + 5));
  (void)attention(q, kv, kv, false, 0.0);
  EXPECT_EQ(told_.work.flop, 2 * pair * (3 * 5));
  const AttentionResult own = self_attention(qkv, true, 0.0);
  EXPECT_EQ(told_.work.flop, 2 * pair * (1 + 2 + 3));
  (void)self_attention_backward(q, qkv, own, true, 0.0);
  EXPECT_EQ(told_.work.flop, 5 * pair * (1 + 2 + 3));
}

TEST_F(OpWorkTest, OfWhatIsNoProductIsBytesAlone) {
  Tensor y = zeros({2, 6});
  (void)add(y, zeros({6}));
  EXPECT_EQ(told_.work.flop, 0);
  EXPECT_EQ(told_.work.bytes, 4 * (12 + 6 + 12));
  add_into(y, zeros({6}));
  EXPECT_EQ(told_.work.bytes, 4 * (12 + 6 + 12)) << "y is read and written";
}

}  // namespace
}  // namespace elinvar
