#pragma once
// Batches as a pure function of (dataset, options, step, virtual rank). There is no cursor to save: a run resumes at
// step n by asking for step n.
//
// An epoch deals every sample exactly once, in the order of Permutation(seed, epoch), or ascending without shuffling.
// Step s is batch s % steps_per_epoch() of epoch s / steps_per_epoch(). A batch has m = global_batch samples (the last
// of an epoch what is left), of which virtual rank v of V owns those at positions [m*v/V, m*(v+1)/V): equal shares if
// V divides m, else shares that differ by one. In a short batch a share can be empty: samples == 0.
//
// Where batches are not all of one size, a step is known by its cursor instead: the samples dealt before it, and how
// many it takes. Whatever sizes follow each other, each epoch deals every sample once.
//
// Reader threads prepare the batches that are likely to be asked for next. They decide when a batch is made, never what
// is in it.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "data/dataset.h"
#include "data/mixing.h"
#include "tensor/transfer.h"

namespace elinvar {

struct Batch {
  Tensor input;             // (N, H, W, C) float32, or (N, T) int32
  Tensor target;            // (N) int64, or (N, T) int64
  int64_t samples = 0;      // N
  MixedTargets mixed = {};  // where images were mixed; else undefined
  Upload sent = {};         // the input, on its way to LoaderOptions::device

  bool is_text() const { return input.defined() && input.dtype() == DType::i32; }
  // What was sent, if it is still the input and went there. Tokens are checked on the CPU before they are used, so they
  // stay.
  Tensor input_on(Device device) const;
};

struct Cursor {
  int64_t samples = 0;  // dealt before, over all epochs
  int64_t batch = 1;    // the last one of an epoch takes what is left
  bool operator==(const Cursor&) const = default;
};

struct LoaderOptions {
  uint64_t seed = 0;
  int64_t global_batch = 1;
  int virtual_ranks = 1;
  bool shuffle = true;
  bool augment = true;         // false for evaluation
  int64_t augment_epochs = 0;  // only in so many first epochs; 0: in all
  Mixing mixing = {};          // of images, where they are augmented
  int threads = 1;             // reader threads; 0: every batch is made when it is asked for
  int prefetch = 4;            // batches (of one virtual rank) that are made ahead; 0: none
  bool tuned = false;          // both are only where it begins: data/prefetch_tuner.h
  Device device = {};          // that they are for: those made ahead are sent there, too
};

class Loader {
 public:
  Loader(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // With batches of global_batch samples.
  int64_t steps_per_epoch() const;
  Cursor cursor(int64_t step) const;
  int64_t step_at(int64_t samples) const;  // the step in which the sample after so many is dealt
  // Samples in the global batch of a step, and those of one virtual rank.
  int64_t samples(int64_t step) const { return samples(cursor(step)); }
  int64_t samples(int64_t step, int vrank) const { return samples(cursor(step), vrank); }
  int64_t samples(const Cursor& at) const;
  int64_t samples(const Cursor& at, int vrank) const;

  // The index of the sample at a position of an epoch.
  int64_t index(int64_t epoch, int64_t position) const;

  // What a reader failed with is thrown here, by the batch that it belongs to. While a reader is still at the batch,
  // the caller makes others that are made ahead. Called from one thread at a time.
  Batch batch(int64_t step, int vrank) { return batch(cursor(step), vrank); }
  Batch batch(const Cursor& at, int vrank);

  // What was decided about readers since this was asked last, and why; "": nothing.
  std::string news() { return std::exchange(news_, {}); }

  // Which virtual ranks this process will ask for, in ascending order within each step: what is prepared ahead.
  // All of them until it is called.
  void expect(int first, int count);

 private:
  struct Slice {
    int64_t epoch, begin, end;  // positions within the epoch
  };
  Slice slice(const Cursor& at, int vrank) const;
  Batch make(const Cursor& at, int vrank) const;

  std::shared_ptr<const Dataset> dataset_;
  LoaderOptions options_;
  struct Readers;
  std::unique_ptr<Readers> readers_;
  std::string news_;
};

}  // namespace elinvar
