#include "tensor/graph.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "tensor/base/check.h"
#include "tensor/ops/copy.h"
#include "tensor/trace.h"

namespace elinvar {

void refuse_to_record(const char* what) { fail("[graph] {} cannot be recorded", what); }

namespace {

bool alike(const Tensor& a, const Tensor& b) {
  return a.defined() == b.defined() &&
         (!a.defined() || (a.shape() == b.shape() && a.dtype() == b.dtype() && a.device() == b.device()));
}
bool same(const Tensor& a, const Tensor& b) { return alike(a, b) && a.raw() == b.raw() && a.strides() == b.strides(); }

bool same_key(const Rng& a, const Rng& b) { return a.seed == b.seed && a.step == b.step && a.vrank == b.vrank; }

}  // namespace

// The data at fixed addresses, and how it gets there. It is outside the graphs' memory, every piece of which may be
// overwritten by earlier work, or by another graph. The work is destroyed before the data that it reads.
struct Graph::Parts {
  struct Derived {
    std::vector<size_t> from;  // indices in `here`
    Make make;
    size_t first, count;  // results, in `here`
  };
  struct Sent {
    size_t from;  // index in `here`
    Tensor there;
  };

  // The last graph that goes gives back the memory that is kept for graphs.
  struct Live {
    static inline std::atomic<int> count = 0;
    Device device;
    explicit Live(Device of) : device(of) { ++count; }
    Live(const Live&) = delete;
    Live& operator=(const Live&) = delete;
    ~Live() {
      if (--count > 0) return;
      on_gpu(device, []<class B>(GpuStream<B>& stream) { recording_stream<B>(stream.index()).give_back(); });
    }
  };

  Parts(Device of, const GraphInputs& inputs) : live(of), device(of), rng(inputs.rng), here(inputs.tensors) {}

  Live live;
  Device device;
  Rng rng;                    // while the graph is being recorded
  std::vector<Tensor> given;  // arguments of the work
  std::vector<Tensor> here;   // inputs of the last replay, and tensors derived from them
  std::vector<Derived> derived;
  std::vector<Sent> sent;
  std::vector<std::pair<Tensor, Tensor>> constants;  // on the CPU, and on the device
  Tensor key;
  std::vector<Mark> marks;  // the work holds them too
  std::unique_ptr<RecordedWork> work;
};

namespace {

thread_local Graph::Parts* recorded = nullptr;

struct Unrecorded {
  Graph::Parts* const before = std::exchange(recorded, nullptr);
  ~Unrecorded() { recorded = before; }
};

// Allocates from the device's memory, not the graphs'; contents are unspecified.
Tensor outside(const Tensor& like, Device device) {
  Tensor t;
  on_gpu(device, [&]<class B>(GpuStream<B>&) {
    struct Back {
      GpuStream<B>* const before = std::exchange(recorded_on<B>(), nullptr);
      ~Back() { recorded_on<B>() = before; }
    } const back;
    t = Tensor::empty(like.shape(), like.dtype(), device);
  });
  return t;
}

size_t place_of(const Tensor& here) {
  const auto found =
      std::ranges::find_if(recorded->here, [&](const Tensor& t) { return t.defined() && same(t, here); });
  if (here.device() != Device{} || found == recorded->here.end())
    refuse_to_record("what the CPU makes of anything but inputs");
  return static_cast<size_t>(found - recorded->here.begin());
}

}  // namespace

Graph::Graph(Device device, const GraphInputs& inputs, const std::function<void(std::span<const Tensor>)>& work)
    : parts_(std::make_unique<Parts>(device, inputs)) {
  check(device != Device{}, "[graph] work of a GPU expected");
  check(recorded == nullptr, "[graph] what is being recorded cannot record a graph");
  for (size_t i = 0; i < inputs.tensors.size(); ++i)  // else one could be taken for the other
    for (size_t k = 0; k < i; ++k)
      check(!inputs.tensors[i].defined() || !same(inputs.tensors[i], inputs.tensors[k]),
            "[graph] inputs {} and {} are one tensor", k, i);
  const trace::Pause pause;
  on_gpu(device, [&](auto& stream) {
    stream.give_back();  // memory that this took before it was a graph
    for (const Tensor& t : inputs.tensors)
      parts_->given.push_back(!t.defined() || t.device() == Device{} ? t : outside(t, device));
    parts_->key = outside(Tensor::empty({static_cast<int64_t>(sizeof(Rng))}, DType::u8), device);
    parts_->work = record(stream, [&] {
      recorded = parts_.get();
      struct Over {
        ~Over() { recorded = nullptr; }
      } over;
      work(parts_->given);
    });
  });
  parts_->here.assign(parts_->here.size(), {});
  for (auto& [here, there] : parts_->constants) copy(here, there);
}

Graph::~Graph() = default;

void Graph::replay(const GraphInputs& inputs) {
  Parts& p = *parts_;
  check(inputs.tensors.size() == p.given.size(), "[graph] {} inputs expected, got {}", p.given.size(),
        inputs.tensors.size());
  for (size_t i = 0; i < p.given.size(); ++i)
    check(alike(inputs.tensors[i], p.given[i]), "[graph] input {} is not like the one that was recorded", i);
  const trace::Pause pause;
  std::ranges::copy(inputs.tensors, p.here.begin());
  struct Forget {
    std::vector<Tensor>& here;
    ~Forget() { here.assign(here.size(), {}); }
  } const forget{p.here};
  for (const Parts::Derived& d : p.derived) {  // these check their inputs, so they come before any write
    std::vector<Tensor> from;
    for (const size_t i : d.from) from.push_back(p.here[i]);
    std::vector<Tensor> made = d.make(from);
    invariant(made.size() == d.count, "as many tensors are derived as ever");
    std::ranges::move(made, p.here.begin() + static_cast<std::ptrdiff_t>(d.first));
  }
  for (Parts::Sent& sent : p.sent) {
    const Tensor& now = p.here[sent.from];
    invariant(now.shape() == sent.there.shape() && now.dtype() == sent.there.dtype(), "what is sent is like the first");
    copy(now, sent.there);
  }
  for (size_t i = 0; i < p.given.size(); ++i)
    if (p.given[i].defined() && p.given[i].device() == p.device) copy(inputs.tensors[i], p.given[i]);
  Tensor key = Tensor::empty(p.key.shape(), DType::u8);
  std::memcpy(key.raw(), &inputs.rng, sizeof(Rng));
  copy(key, p.key);
  p.work->launch();
}

Mark mark(std::span<const Tensor> complete) {
  Mark place;
  if (recorded == nullptr) return place;
  on_gpu(recorded->device, [&](auto& stream) { place = mark(stream, complete); });
  recorded->marks.push_back(place);
  return place;
}

std::vector<Tensor> derived(std::vector<Tensor> from, const Make& make) {
  std::vector<Tensor> made;
  {
    const Unrecorded whole;  // whatever it derives in turn is a part of it
    made = make(from);
  }
  if (recorded == nullptr) return made;
  Graph::Parts::Derived d{.from = {}, .make = make, .first = recorded->here.size(), .count = made.size()};
  for (const Tensor& source : from) d.from.push_back(place_of(source));
  recorded->here.insert(recorded->here.end(), made.begin(), made.end());
  recorded->derived.push_back(std::move(d));
  return made;
}

Tensor graph_constant(const Tensor& here, Device device) {
  if (recorded == nullptr || device != recorded->device) return {};
  auto& constants = recorded->constants;
  auto known = std::ranges::find_if(constants, [&](const auto& c) { return same(c.first, here); });
  if (known == constants.end()) known = constants.insert(known, {here, outside(here, device)});
  return known->second;
}

bool sent_by_graph(const Tensor& here, const Tensor& there) {
  if (recorded == nullptr || there.device() != recorded->device) return false;
  std::vector<Graph::Parts::Sent>& sent = recorded->sent;
  const size_t place = place_of(here);
  auto known = std::ranges::find_if(sent, [&](const auto& s) { return s.from == place; });
  if (known == sent.end()) known = sent.insert(known, {place, outside(here, there.device())});
  Tensor to = there;
  copy(known->there, to);
  return true;
}

const Rng* key_on_device(const Rng& rng) {
  if (recorded == nullptr) return nullptr;
  if (!same_key(rng, recorded->rng)) refuse_to_record("a random number of another key than the work's");
  return static_cast<const Rng*>(std::as_const(recorded->key).raw());
}

}  // namespace elinvar
