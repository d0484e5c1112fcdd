#pragma once
// Batches as a pure function of (dataset, options, step, virtual rank). There is no position to save: a run resumes at
// step n by requesting step n.
//
// An epoch has every sample exactly once, in the order of Permutation(seed, epoch), or ascending without shuffling.
// Step s is batch s % steps_per_epoch() of epoch s / steps_per_epoch(). A batch has m = global_batch samples; the last
// of an epoch has what is left. Virtual rank v of V owns those at positions [m*v/V, m*(v+1)/V), so shares differ by one
// at most. In a short batch a share can be empty: samples == 0.
//
// If the batch size changes during a run, a step is identified by its cursor instead: the number of samples before it,
// and its size. Whatever the sizes, each epoch has every sample once. A batch that grows by a rule (BatchGrowth) is
// still a function of the step.
//
// Reader threads prepare the batches that are likely to be requested next. They decide when a batch is made, never what
// it holds.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/dataset.h"
#include "data/mixing.h"
#include "tensor/transfer.h"

namespace elinvar {

struct Batch {
  Tensor input;                             // the first one: (N, H, W, C) float32, or (N, T) int32
  Tensor target;                            // (N) int64, (N, T) int64, or (N, ..) float32
  int64_t samples = 0;                      // N
  MixedTargets mixed = {};                  // if images were mixed; otherwise its tensors are undefined
  std::vector<Tensor> further_inputs = {};  // (N, ..) each
  Upload sent = {};                         // the transfer of the input to LoaderOptions::device

  bool is_text() const { return input.defined() && input.dtype() == DType::i32; }
  // Returns the input on a device: what was sent, if it went there and is still the input. Tokens stay on the CPU,
  // where they are checked before use.
  Tensor input_on(Device device) const;
  std::vector<Tensor> further_inputs_on(Device device) const;
};

struct Cursor {
  int64_t samples = 0;  // before this batch, over all epochs
  int64_t batch = 1;    // size; the last batch of an epoch takes what is left
  bool operator==(const Cursor&) const = default;
};

// Multiplies the batch by `factor` after each `every` epochs, as long as it is below `most`.
struct BatchGrowth {
  int64_t every = 0;  // 0: never
  int64_t factor = 2;
  int64_t most = 0;
};

struct LoaderOptions {
  uint64_t seed = 0;
  int64_t global_batch = 1;  // of the first epoch
  BatchGrowth growth = {};
  int virtual_ranks = 1;
  bool shuffle = true;
  bool augment = true;         // false for evaluation
  int64_t augment_epochs = 0;  // number of epochs, from the first, that are augmented; 0: all
  Mixing mixing = {};          // of images, if they are augmented
  int threads = 1;             // reader threads; 0: every batch is made when it is requested
  int prefetch = 4;            // batches (of one virtual rank) to make ahead; 0: none
  bool tuned = false;          // whether both are adjusted as batches are used: data/prefetch_tuner.h
  Device device = {};          // where batches are used; those made ahead are sent there
};

class Loader {
 public:
  Loader(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // These assume batches of global_batch samples, without growth.
  int64_t steps_per_epoch() const;
  int64_t step_at(int64_t samples) const;  // the step that has the sample after the first `samples`

  int64_t batch_of_epoch(int64_t epoch) const;
  Cursor cursor(int64_t step) const;
  double steps_in(double epochs) const;
  // Samples in the global batch of a step, and those of one virtual rank.
  int64_t samples(int64_t step) const { return samples(cursor(step)); }
  int64_t samples(int64_t step, int vrank) const { return samples(cursor(step), vrank); }
  int64_t samples(const Cursor& at) const;
  int64_t samples(const Cursor& at, int vrank) const;

  // Returns the index of the sample at a position of an epoch.
  int64_t index(int64_t epoch, int64_t position) const;

  // Returns a batch, or throws what its reader failed with. While a reader still makes the batch, the caller makes
  // others ahead. Call it from one thread at a time.
  Batch batch(int64_t step, int vrank) { return batch(cursor(step), vrank); }
  Batch batch(const Cursor& at, int vrank);
  // Returns the inputs of all virtual ranks in order, before images are mixed. It is made here, by the caller.
  Batch whole_batch(const Cursor& at) const;

  // Returns what was decided about readers since the last call, and why; "" if nothing was.
  std::string news() { return std::exchange(news_, {}); }

  // Tells which virtual ranks this process will request, in ascending order within each step, so that these are
  // prepared ahead. Until it is called, all are.
  void expect(int first, int count);

 private:
  struct Slice {
    int64_t epoch, begin, end;  // positions within the epoch
  };
  Slice slice(const Cursor& at, int vrank) const;
  template <class F>
  void each_stage(F f) const;
  Batch make(const Cursor& at, int vrank) const { return make(slice(at, vrank), options_.mixing); }
  Batch make(const Slice& of, const Mixing& mixing) const;

  std::shared_ptr<const Dataset> dataset_;
  LoaderOptions options_;
  struct Readers;
  std::unique_ptr<Readers> readers_;
  std::string news_;
};

}  // namespace elinvar
