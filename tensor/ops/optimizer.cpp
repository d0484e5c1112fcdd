#include "tensor/ops/optimizer.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/ops/optimizer.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>

#include "tensor/isa.h"
#include "tensor/op_check.h"
#include "tensor/ops/optimizer-inl.h"
#include "tensor/square_sum-inl.h"
#include "tensor/trace.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

// Calls step(offset, count) for the vectors of [begin, end). A full count is known at compile time.
template <class T, class Step>
HWY_INLINE void each_vector(int64_t begin, int64_t end, Step step) {
  constexpr int64_t kLanes = Vec<T>::kLanes;
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) step(i, std::integral_constant<int64_t, kLanes>());
  if (i < end) step(i, end - i);
}

template <class T, bool kMomentum>
void sgd_range_of(const SgdArgs& a, int64_t begin, int64_t end) {
  using V = Vec<T>;
  const SgdUpdate<T, kMomentum> update(a);
  const T* g = a.g.as<T>();
  T *p = a.p.as<T>(), *v = a.v.as<T>();
  each_vector<T>(begin, end, [&](int64_t i, auto count) {
    V vv = V::set(T{0});
    if constexpr (kMomentum) vv = V::load(v + i, count);
    const V vp = update(V::load(g + i, count), V::load(p + i, count), vv);
    if constexpr (kMomentum) vv.store(v + i, count);
    vp.store(p + i, count);
  });
}

void sgd_range(const SgdArgs& a, int64_t begin, int64_t end) {
  visit_element(a.g.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (a.v.data) sgd_range_of<T, true>(a, begin, end);
    else sgd_range_of<T, false>(a, begin, end);
  });
}

void adam_range(const AdamArgs& a, int64_t begin, int64_t end) {
  visit_element(a.g.dtype, [&](auto zero) {
    using T = decltype(zero);
    using V = Vec<T>;
    const AdamUpdate<T> update(a);
    const T* g = a.g.as<T>();
    T *p = a.p.as<T>(), *m = a.m.as<T>(), *v = a.v.as<T>();
    each_vector<T>(begin, end, [&](int64_t i, auto count) {
      V vm = V::load(m + i, count), vv = V::load(v + i, count);
      const V vp = update(V::load(g + i, count), V::load(p + i, count), vm, vv);
      vm.store(m + i, count);
      vv.store(v + i, count);
      vp.store(p + i, count);
    });
  });
}

void lamb_moments_segments(const LambArgs& a, int64_t begin, int64_t end) {
  visit_element(a.g.dtype, [&](auto zero) {
    using T = decltype(zero);
    using V = Vec<T>;
    const LambUpdate<T> update(a);
    const T *g = a.g.as<T>(), *p = a.p.as<T>();
    T *m = a.m.as<T>(), *v = a.v.as<T>();
    alignas(64) T u[kRowSegment];
    for (int64_t s = begin; s < end; ++s) {
      const int64_t first = s * kRowSegment, n = std::min(kRowSegment, a.n - first);
      each_vector<T>(first, first + n, [&](int64_t i, auto count) {
        V vm = V::load(m + i, count), vv = V::load(v + i, count);
        update.moments(V::load(g + i, count), V::load(p + i, count), vm, vv).store(u + (i - first), count);
        vm.store(m + i, count);
        vv.store(v + i, count);
      });
      a.square_sums.as<double>()[2 * s] = segment_square_sum(p + first, n);
      a.square_sums.as<double>()[2 * s + 1] = segment_square_sum(u, n);
    }
  });
}

void lamb_apply_range(const LambArgs& a, int64_t begin, int64_t end) {
  visit_element(a.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    using V = Vec<T>;
    const LambUpdate<T> update(a);
    const T *m = a.m.as<T>(), *v = a.v.as<T>();
    T* p = a.p.as<T>();
    each_vector<T>(begin, end, [&](int64_t i, auto count) {
      update.apply(V::load(p + i, count), V::load(m + i, count), V::load(v + i, count)).store(p + i, count);
    });
  });
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elinvar {

HWY_EXPORT(sgd_range);
HWY_EXPORT(adam_range);
HWY_EXPORT(lamb_moments_segments);
HWY_EXPORT(lamb_apply_range);

namespace {

constexpr int64_t kGrain = 8192;  // least elements per thread

// Divides the elements of all parameters, in order, among threads; update(args, begin, end) updates a part of one
// parameter.
template <class Args, class Update>
void each_range(CpuStream& stream, std::span<const Args> all, Update update) {
  int64_t total = 0;
  for (const Args& a : all) total += a.n;
  stream.parallel_for(total, kGrain, [&](int64_t begin, int64_t end) {
    int64_t first = 0;
    for (const Args& a : all) {
      const int64_t from = std::max<int64_t>(begin - first, 0), to = std::min(end - first, a.n);
      if (from < to) update(a, from, to);
      first += a.n;
    }
  });
}

}  // namespace

void sgd(CpuStream& stream, std::span<const SgdArgs> all) {
  each_range(stream, all, [](const SgdArgs& a, int64_t b, int64_t e) {
    ELINVAR_KERNEL(sgd_range, a.g.dtype)(a, b, e);
  });
}
void adam(CpuStream& stream, std::span<const AdamArgs> all) {
  each_range(stream, all, [](const AdamArgs& a, int64_t b, int64_t e) {
    ELINVAR_KERNEL(adam_range, a.g.dtype)(a, b, e);
  });
}
void lamb_moments(CpuStream& stream, const LambArgs& a) {
  stream.parallel_for(segments_of(a.n), 2, [&](int64_t b, int64_t e) {
    ELINVAR_KERNEL(lamb_moments_segments, a.g.dtype)(a, b, e);
  });
}
void lamb_apply(CpuStream& stream, const LambArgs& a) {
  stream.parallel_for(a.n, kGrain, [&](int64_t b, int64_t e) { ELINVAR_KERNEL(lamb_apply_range, a.p.dtype)(a, b, e); });
}

namespace {

// Checks `what`, a tensor of the kernel's arguments for the parameter p.
void check_parameter(const char* op, const Tensor& p, const Tensor& what, int64_t n) {
  check_same_dtype(op, p, what);
  check_same_shape(op, p, what);
  check(p.contiguous() && what.contiguous() && p.numel() == n, "[{}] {} contiguous elements expected, shape is {}", op,
        n, to_string(p.shape()));
}

// Requires that parameter i is on the device of parameter 0 and of a type in which that device computes.
void check_on_device_of_first(const char* op, const std::vector<Tensor>& p, size_t i) {
  check_float(op, p[i]);
  check(p[i].device() == p[0].device(), "[{}] parameters must be on one device, got {} and {}", op,
        to_string(p[0].device()), to_string(p[i].device()));
}

// Returns the constants of each parameter with its addresses filled in.
template <class Args>
std::vector<Args> with_addresses(const char* op, const std::vector<Tensor>& g, std::vector<Tensor>& p,
                                 const std::vector<Args>& constants) {
  check(g.size() == p.size() && constants.size() == p.size(), "[{}] {} parameters, but {} gradients and {} constants",
        op, p.size(), g.size(), constants.size());
  std::vector<Args> all = constants;
  for (size_t i = 0; i < all.size(); ++i) {
    check_on_device_of_first(op, p, i);
    check_parameter(op, p[i], g[i], all[i].n);
    all[i].g = in(g[i]);
    all[i].p = out(p[i]);
  }
  return all;
}

template <class Args>
void add_moments(const char* op, std::vector<Tensor>& p, std::vector<Tensor>& m, std::vector<Tensor>& v,
                 std::vector<Args>& all) {
  check(m.size() == p.size() && v.size() == p.size(), "[{}] {} parameters, but {} and {} moments", op, p.size(),
        m.size(), v.size());
  for (size_t i = 0; i < all.size(); ++i) {
    check_parameter(op, p[i], m[i], all[i].n);
    check_parameter(op, p[i], v[i], all[i].n);
    all[i].m = out(m[i]);
    all[i].v = out(v[i]);
  }
}

// The device of all parameters.
Device device_of(const std::vector<Tensor>& p) { return p.empty() ? Device{} : p[0].device(); }

void sgd_of(const std::vector<Tensor>& g, std::vector<Tensor>& p, std::vector<Tensor>& v,
            const std::vector<SgdArgs>& constants) {
  std::vector<SgdArgs> all = with_addresses("sgd", g, p, constants);
  check(v.empty() || v.size() == p.size(), "[sgd] {} parameters, but {} velocities", p.size(), v.size());
  for (size_t i = 0; i < v.size(); ++i) {
    check_parameter("sgd", p[i], v[i], all[i].n);
    all[i].v = out(v[i]);
  }
  on(device_of(p), [&](auto& stream) { sgd(stream, all); });
}

void adam_of(const std::vector<Tensor>& g, std::vector<Tensor>& p, std::vector<Tensor>& m, std::vector<Tensor>& v,
             const std::vector<AdamArgs>& constants) {
  std::vector<AdamArgs> all = with_addresses("adam", g, p, constants);
  add_moments("adam", p, m, v, all);
  on(device_of(p), [&](auto& stream) { adam(stream, all); });
}

Tensor lamb_moments_of(const std::vector<Tensor>& g, const std::vector<Tensor>& p_in, std::vector<Tensor>& m,
                       std::vector<Tensor>& v, const std::vector<LambArgs>& constants) {
  std::vector<Tensor> p = p_in;
  std::vector<LambArgs> all = with_addresses("lamb", g, p, constants);
  add_moments("lamb", p, m, v, all);
  int64_t segments = 0;
  for (const LambArgs& a : all) segments += segments_of(a.n);
  Tensor sums = Tensor::empty({segments, 2}, DType::f64, device_of(p));
  on(device_of(p), [&](auto& stream) {
    auto* at = static_cast<double*>(sums.raw());
    for (LambArgs& a : all) {
      a.square_sums = {at, DType::f64};
      lamb_moments(stream, a);
      at += 2 * segments_of(a.n);
    }
  });
  return sums;
}

void lamb_apply_of(std::vector<Tensor>& p, const std::vector<Tensor>& m_in, const std::vector<Tensor>& v_in,
                   const std::vector<LambArgs>& constants) {
  std::vector<Tensor> m = m_in, v = v_in;
  std::vector<LambArgs> all = constants;
  check(constants.size() == p.size(), "[lamb] {} parameters, but {} constants", p.size(), constants.size());
  for (size_t i = 0; i < all.size(); ++i) {
    check_on_device_of_first("lamb", p, i);
    all[i].p = out(p[i]);
  }
  add_moments("lamb", p, m, v, all);
  on(device_of(p), [&](auto& stream) {
    for (const LambArgs& a : all) lamb_apply(stream, a);
  });
}

const Op kSgd("sgd(g, p, v, constants)", sgd_of);
const Op kAdam("adam(g, p, m, v, constants)", adam_of);
const Op kLambMoments("lamb_moments(g, p, m, v, constants) -> square_sums", lamb_moments_of);
const Op kLambApply("lamb_apply(p, m, v, constants)", lamb_apply_of);

}  // namespace

void sgd(const std::vector<Tensor>& g, std::vector<Tensor>& p, std::vector<Tensor>& v,
         const std::vector<SgdArgs>& constants) {
  kSgd(g, p, v, constants);
}

void adam(const std::vector<Tensor>& g, std::vector<Tensor>& p, std::vector<Tensor>& m, std::vector<Tensor>& v,
          const std::vector<AdamArgs>& constants) {
  kAdam(g, p, m, v, constants);
}

Tensor lamb_moments(const std::vector<Tensor>& g, const std::vector<Tensor>& p, std::vector<Tensor>& m,
                    std::vector<Tensor>& v, const std::vector<LambArgs>& constants) {
  return kLambMoments(g, p, m, v, constants);
}

void lamb_apply(std::vector<Tensor>& p, const std::vector<Tensor>& m, const std::vector<Tensor>& v,
                const std::vector<LambArgs>& constants) {
  kLambApply(p, m, v, constants);
}

}  // namespace elinvar
#endif
