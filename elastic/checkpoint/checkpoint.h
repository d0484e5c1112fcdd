#pragma once
// Checkpoints: directories step-<n> that hold the state after n updates. A checkpoint appears whole or not at all, and
// damage is detected (CHECKPOINT.md describes the files). The checkpoint of step 0 holds imported weights: the state
// with which a run begins if it does not begin with a new network.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "elastic/checkpoint/checkpoint_reader.h"
#include "elastic/checkpoint/manifest.h"
#include "tensor/state.h"
#include "tensor/state_slice.h"

namespace elinvar {

struct Checkpoint {
  int64_t step = 0;
  StateDict state;
  Digest digest;  // the state's digest
};

// A part that is written piece by piece. A part that is not finished leaves no file.
class PartFile {
 public:
  ~PartFile();
  PartFile(PartFile&&) noexcept;
  void write(const void* bytes, size_t count);
  int64_t bytes() const;
  CheckpointPart finish();  // returns when the file is on disk

 private:
  friend class CheckpointStore;
  explicit PartFile(const std::filesystem::path& path);
  struct Open;
  std::unique_ptr<Open> open_;
};

class CheckpointStore {
 public:
  // Touches no files. `keep` (at least 1) is the number of newest checkpoints that write() keeps, besides step 0.
  explicit CheckpointStore(std::filesystem::path directory, int keep = 1);

  // For the process that will write: creates the directory and removes the remains of an interrupted write.
  void prepare();

  // Several processes may write a checkpoint: each writes its parts to the uncommitted folder, and a process that knows
  // all parts commits them. All parts together hold each tensor once, whole or in slices. write_part() returns when the
  // file is on disk; the file has the bytes of stream_safetensors() for contents_of().
  PartFile create_part(int64_t step, const std::string& file) const;
  CheckpointPart write_part(int64_t step, const std::string& file, const StateDict& tensors,
                            std::span<const StateSlice> slices = {}) const;
  // Returns when the checkpoint would survive a power cut. Keeps an existing checkpoint with this digest; replaces any
  // other of this step. On Failure (no room, a read-only disk) it leaves nothing new behind.
  void commit(int64_t step, const std::vector<CheckpointPart>& parts, const Digest& digest);
  void write(int64_t step, const StateDict& state, const Digest& digest);  // writes the whole checkpoint in one process

  // Removes older checkpoints beyond `keep`, and uncommitted parts of earlier steps. Call it after the commit of
  // `step`. Returns "" or why something could not be removed; the next call tries again.
  std::string prune(int64_t step) const;
  // Both remove uncommitted parts and ignore errors. discard_parts() removes those of an attempt in which a part could
  // not be written; trim_aside() removes those of all steps but the `keep` latest.
  void discard_parts(int64_t step, int parts) const;
  void trim_aside(size_t keep) const;

  // Copies the checkpoint of step 0 of another run, if it has one.
  void copy_first(const CheckpointStore& other);

  std::vector<int64_t> steps() const;  // ascending; some may be damaged

  // Returns the state's digest from a manifest; null without a readable manifest.
  std::optional<Digest> manifest_digest(int64_t step) const;
  // Reads and verifies a checkpoint, and joins slices to whole tensors. Throws Failure that says what is wrong with it.
  Checkpoint read(int64_t step) const;
  // Opens a checkpoint to read some of its tensors, and verifies its parts. Throws Failure likewise.
  CheckpointReader open(int64_t step) const;

  struct Rejected {
    int64_t step;
    std::string reason;
  };
  // Returns the newest checkpoint that is undamaged and for which `acceptable` returns no reason (""); null if there is
  // none. Adds those passed over to `rejected`. Reads states until one is good.
  std::optional<Checkpoint> newest_good(const std::function<std::string(const Checkpoint&)>& acceptable,
                                        std::vector<Rejected>& rejected) const;

 private:
  std::vector<int64_t> steps_aside() const;
  std::filesystem::path path_of(int64_t step) const;
  std::filesystem::path aside_of(int64_t step) const;
  std::filesystem::path directory_;
  int keep_;
};

}  // namespace elinvar
