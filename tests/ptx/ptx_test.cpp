// The interpreter itself: its results follow the PTX specification, and it reports the errors that README.md names.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/ptx/failure.h"
#include "tests/ptx/kernels.h"
#include "tests/ptx/memory.h"
#include "tests/ptx/module.h"
#include "tests/ptx/races.h"

namespace elinvar::ptx {
namespace {

constexpr const char* kHead = R"(.version 9.0
.target sm_90
.address_size 64
)";

// A kernel that gets the address of an array. Before `body`, %rd1 is that of the thread's element (4 bytes), and %r1 is
// the thread.
std::string kernel(const std::string& body) {
  return std::string(kHead) + R"(.entry work(
	.param .u64 work_param_0
)
{
	.reg .pred %p<9>;
	.reg .b32 %r<20>;
	.reg .f32 %f<9>;
	.reg .b64 %rd<9>;
	.shared .align 4 .b8 room[256];
	ld.param.u64 %rd8, [work_param_0];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd7, %r1, 4;
	add.s64 %rd1, %rd8, %rd7;
)" + body +
         "\n\tret;\n}\n";
}

// Runs the kernel and returns the array of one element for each thread of a block.
std::vector<uint32_t> run(const std::string& body, unsigned threads = 32, unsigned blocks = 1,
                          RaceDetector* races = nullptr) {
  Module module(parse_module("test", kernel(body)));
  const std::shared_ptr<Function> function = module.find("work");
  void* array = Memory::instance().allocate(4 * threads);
  const auto release = [](void* p) { Memory::instance().release(p); };
  const std::unique_ptr<void, decltype(release)> owner(array, release);
  void* arguments[] = {&array};
  launch(*function,
         {.blocks = blocks, .threads = threads, .dynamic_shared = 0, .parameters = parameters_of(*function, arguments)},
         races);
  const auto* const values = static_cast<const uint32_t*>(array);
  return {values, values + threads};
}

std::string failure(const std::string& body, unsigned threads = 32, unsigned blocks = 1, bool races = false) {
  RaceDetector detector;
  try {
    run(body, threads, blocks, races ? &detector : nullptr);
  } catch (const PtxError& e) {
    return e.what();
  }
  return "";
}

void expect_failure(const std::string& body, const char* text, unsigned threads = 32, unsigned blocks = 1,
                    bool races = false) {
  EXPECT_NE(failure(body, threads, blocks, races).find(text), std::string::npos)
      << "expected \"" << text << "\" in \"" << failure(body, threads, blocks, races) << "\"";
}

uint32_t value(const std::string& body) { return run(body + "\n\tst.global.u32 [%rd1], %r2;")[0]; }

TEST(Ptx, AnUnknownInstructionIsNamedWithItsLine) {
  expect_failure("\tsin.approx.f32 %f1, %f2;", "test.ptx:17: work: sin.approx.f32 %f1, %f2: unknown instruction");
  expect_failure("\tadd.s32 %r1, %rd1, 3;", "register %rd1 has 64 bits where 32 are expected");
  expect_failure("\tmov.u32 %r1, %clock;", "unknown register %clock");
}

TEST(Ptx, LanesDivergeAndMeetAgain) {
  const std::vector<uint32_t> values = run(R"(
	mov.u32 %r2, 0;
$L_1:
	add.s32 %r2, %r2, 2;
	setp.lt.u32 %p1, %r2, %r1;
	@%p1 bra $L_1;
	shfl.sync.bfly.b32 %r3, %r2, 1, 31, -1;
	st.global.u32 [%rd1], %r3;)");
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(values[i], std::max(2u, ((i ^ 1) + 1) / 2 * 2)) << i;
}

TEST(Ptx, FieldsOfBits) {
  EXPECT_EQ(value("\tbfe.u32 %r2, 0x89abcdef, 8, 12;"), 0xbcdu);
  EXPECT_EQ(value("\tbfe.s32 %r2, 0x89abcdef, 8, 12;"), 0xfffffbcdu);
  EXPECT_EQ(value("\tbfe.s32 %r2, 0x89abcdef, 28, 12;"), 0xfffffff8u);
  EXPECT_EQ(value("\tbfe.s32 %r2, 0x89abcdef, 40, 4;"), 0xffffffffu);
  EXPECT_EQ(value("\tbfe.u32 %r2, 0x89abcdef, 0, 0;"), 0u);
  EXPECT_EQ(value("\tbfi.b32 %r2, 0xff, 0x89abcdef, 28, 12;"), 0xf9abcdefu);
  EXPECT_EQ(value("\tprmt.b32 %r2, 0x03020100, 0x87060504, 0xf470;"), 0xff048700u);
}

TEST(Ptx, NumbersAtTheEdges) {
  EXPECT_EQ(value("\tcvt.rzi.s32.f32 %r2, 0f4F000000;"), 0x7fffffffu);
  EXPECT_EQ(value("\tcvt.rzi.s32.f32 %r2, 0f7FC00000;"), 0u);
  EXPECT_EQ(value("\tsub.rn.f32 %f1, 0f7F800000, 0f7F800000;\n\tmov.b32 %r2, %f1;"), 0x7fffffffu);
  EXPECT_EQ(value("\tfma.rn.f32 %f1, 0f3F800001, 0f3F800001, 0fBF800002;\n\tmov.b32 %r2, %f1;"), 0x28800000u);
  EXPECT_EQ(value("\tmax.f32 %f1, 0f80000000, 0f00000000;\n\tmov.b32 %r2, %f1;"), 0u);
  EXPECT_EQ(value("\tshr.s32 %r2, -8, 99;"), 0xffffffffu);
  EXPECT_EQ(value("\tmul.hi.s32 %r2, -2, 3;"), 0xffffffffu);
  expect_failure("\tdiv.s32 %r2, %r1, 0;", "division by zero");
}

// A has the number of the lane at k = 4 t of row g, and B is 1 there, so D has the sum over t. Then both have bytes 1,
// -1, -128 and 127 everywhere.
TEST(Ptx, ProductsOfBytes) {
  const std::vector<uint32_t> sums = run(R"(
	mov.b32 %r3, 0;
	mov.b32 %r4, 1;
	mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32
		{%r5, %r6, %r7, %r8}, {%r1, %r3, %r3, %r3}, {%r4, %r3}, {%r1, %r3, %r3, %r3};
	st.global.u32 [%rd1], %r5;)");
  for (uint32_t lane = 0; lane < 32; ++lane) EXPECT_EQ(sums[lane], lane + 16 * (lane / 4) + 6) << lane;
  EXPECT_EQ(value(R"(
	mov.b32 %r3, 0x7f80ff01;
	mov.b32 %r4, 0x7fffffff;
	mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32
		{%r5, %r6, %r7, %r2}, {%r3, %r3, %r3, %r3}, {%r3, %r3}, {%r4, %r4, %r4, %r4};)"),
            0x7fffffffu + 8 * (1 + 1 + 128 * 128 + 127 * 127));
  // A has bytes 255 or -1, B has bytes 128 or -128.
  const auto sum = [](const std::string& types) {
    return value(R"(
	mov.b32 %r3, 0xffffffff;
	mov.b32 %r4, 0x80808080;
	mov.b32 %r5, 0;
	mma.sync.aligned.m16n8k32.row.col.s32.)" +
                 types + R"(.s32
		{%r2, %r6, %r7, %r8}, {%r3, %r3, %r3, %r3}, {%r4, %r4}, {%r5, %r5, %r5, %r5};)");
  };
  EXPECT_EQ(sum("s8.s8"), 32u * 128);
  EXPECT_EQ(sum("u8.s8"), 32u * 255 * -128);
  EXPECT_EQ(sum("s8.u8"), 32u * -128);
  EXPECT_EQ(sum("u8.u8"), 32u * 255 * 128);
}

// A product of a warpgroup whose factors are the same 128 lines of 32 bytes, which have the value line % 16. The sums
// begin with 5.
std::string warpgroup_product(const std::string& end) {
  std::string names, begin;
  for (int k = 0; k < 64; ++k) {
    names += (k == 0 ? "%d" : ", %d") + std::to_string(k);
    begin += "\tmov.b32 %d" + std::to_string(k) + ", 5;\n";
  }
  return R"(	.reg .b32 %d<64>;
	.shared .align 16 .b8 lines[4096];
	mov.u32 %r2, lines;
	mul.lo.s32 %r3, %r1, 16;
	add.s32 %r3, %r3, %r2;
	and.b32 %r4, %r1, 15;
	mul.lo.s32 %r4, %r4, 0x01010101;
	st.shared.v4.u32 [%r3], {%r4, %r4, %r4, %r4};
	st.shared.v4.u32 [%r3+2048], {%r4, %r4, %r4, %r4};
	bar.sync 0;
	shr.u32 %r5, %r2, 4;
	cvt.u64.u32 %rd2, %r5;
	or.b64 %rd2, %rd2, 0x800800000;
)" + begin +
         R"(	wgmma.fence.sync.aligned;
	wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8 {)" +
         names + "}, %rd2, %rd2, 1;\n\twgmma.commit_group.sync.aligned;\n" + end;
}

TEST(Ptx, ProductsOfWarpgroupsEndWhenTheirGroupIsAwaited) {
  const std::string store = "\tst.global.u32 [%rd1], %d7;\n", await = "\twgmma.wait_group.sync.aligned 0;\n";
  const std::vector<uint32_t> early = run(warpgroup_product(store + await), 128),
                              late = run(warpgroup_product(await + store), 128);
  for (uint32_t thread = 0; thread < 128; ++thread) {
    const uint32_t row = thread % 32 / 4 + 8, column = 8 + thread % 4 * 2 + 1;  // of %d7, in its warp's rows
    EXPECT_EQ(early[thread], 5u) << thread;
    EXPECT_EQ(late[thread], 5 + 32 * row * column) << thread;
  }
  expect_failure(warpgroup_product(""), "a warp ends before its products", 128);
  expect_failure(warpgroup_product("\twgmma.wait_group.sync.aligned 1;\n"), "a warp ends before its products", 128);
}

TEST(Ptx, CopiesArriveWhenTheirGroupIsAwaited) {
  const auto arrived = [](const std::string& groups) {
    return value(R"(
	mov.u32 %r3, room;
	mov.b32 %r4, 4;
	st.global.u32 [%rd8], 7;
	cp.async.ca.shared.global [%r3], [%rd8], 4, %r4;
	cp.async.commit_group;
	cp.async.commit_group;
	cp.async.wait_group )" +
                 groups + R"(;
	ld.shared.u32 %r2, [room];
	cp.async.wait_all;)");
  };
  EXPECT_EQ(arrived("1"), 7u);
  EXPECT_EQ(arrived("2"), ~0u);
}

TEST(Ptx, AccessesThatAreNowhere) {
  expect_failure("\tst.global.u32 [%rd1+4], %r1;", "not in the memory that this may access");
  expect_failure("\tst.global.u32 [%rd1+2], %r1;", "not aligned");
  expect_failure("\tld.shared.u32 %r2, [room+256];", "beyond the block's shared memory");
  EXPECT_EQ(value("\tld.shared.u32 %r2, [room];"), ~0u) << "fresh shared memory is NaN";
}

TEST(Ptx, WaitsThatDoNotEnd) {
  expect_failure("\tsetp.eq.u32 %p1, %r1, 3;\n\t@%p1 bra $L_1;\n\tbar.sync 0;\n\tret;\n$L_1:\n\tbar.sync 0;",
                 "different barriers");
  expect_failure("\tsetp.eq.u32 %p1, %r1, 3;\n\t@%p1 ret;\n\tshfl.sync.idx.b32 %r2, %r1, 0, 31, -1;",
                 "lanes that have ended");
  expect_failure("\tshfl.sync.down.b32 %r2, %r1, 1, 31, 15;", "not in the mask");
}

// Each thread writes its element of shared memory and reads its neighbour's.
std::string neighbours(const char* barrier) {
  return std::string(R"(
	mov.u32 %r2, room;
	mad.lo.s32 %r2, %r1, 4, %r2;
	st.shared.u32 [%r2], %r1;
	)") +
         barrier +
         R"(
	setp.eq.u32 %p1, %r1, 0;
	@%p1 bra $L_1;
	ld.shared.u32 %r3, [%r2+-4];
	st.global.u32 [%rd1], %r3;
$L_1:
)";
}

TEST(Ptx, RacesAreFound) {
  EXPECT_EQ(failure(neighbours("bar.sync 0;"), 64, 1, true), "");
  EXPECT_EQ(failure(neighbours(""), 64, 1, false), "");
  expect_failure(neighbours(""), "race: bytes read that are written by", 64, 1, true);
  expect_failure("\tst.global.u32 [%rd1], %r1;", "race: bytes written both by", 32, 2, true);
  expect_failure("\tst.global.u32 [%rd8], %r1;", "race: bytes written both by", 32, 1, true);
  expect_failure("\tld.global.u32 %r2, [%rd8];\n\tst.global.u32 [%rd1], %r2;", "race", 32, 1, true);
}

TEST(Ptx, AtomicMaximaAreOfAllLanes) {
  const std::string zero = "\tmov.u32 %r2, 0;\n\tst.global.u32 [%rd1], %r2;\n\tbar.sync 0;\n";
  const std::vector<uint32_t> values = run(zero + "\tatom.global.max.s32 %r3, [%rd8], %r1;", 64);
  EXPECT_EQ(values[0], 63u);
  EXPECT_EQ(values[1], 0u);
  EXPECT_EQ(run("\tatom.global.max.s32 %r3, [%rd1], %r1;", 32)[5], 5u) << "fresh memory is -1";
  EXPECT_EQ(failure("\tatom.global.max.s32 %r3, [%rd8], %r1;", 32, 2, true), "");
  expect_failure("\tatom.global.max.s32 %r3, [%rd8], %r1;\n\tld.global.u32 %r2, [%rd8];", "race", 32, 1, true);
  expect_failure("\tst.global.u32 [%rd8], %r1;\n\tatom.global.max.s32 %r3, [%rd8], %r1;", "race", 32, 2, true);
  expect_failure("\tatom.global.max.s32 %r3, [%rd8+128], %r1;", "not in the memory");
}

TEST(Ptx, ParametersAreAligned) {
  Module module(parse_module("test", std::string(kHead) + R"(.entry work(
	.param .u32 work_param_0,
	.param .u64 .ptr .align 2 work_param_1,
	.param .align 2 .b8 work_param_2[6],
	.param .align 16 .b8 work_param_3[16]
)
{
	ret;
}
)"));
  const std::shared_ptr<Function> function = module.find("work");
  std::vector<size_t> places;
  for (const Parameter& parameter : function->parameters) places.push_back(parameter.at);
  EXPECT_EQ(places, (std::vector<size_t>{0, 8, 16, 32}));
}

// The text for each architecture of the build.
TEST(Ptx, EveryInstructionOfTheBuildIsKnown) {
  for (const PtxFiles& files : files_of_the_build()) EXPECT_GT(decode_all(files.paths), 300u) << files.target;
}

}  // namespace
}  // namespace elinvar::ptx
