#pragma once
// Checkpoints: directories step-<n> that hold the state after n updates. They appear whole or not at all, and a damaged
// one is recognised (CHECKPOINT.md describes the files). That of step 0 is what a run begins with where that is not a
// new network: imported weights.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tensor/state.h"

namespace elinvar {

struct Checkpoint {
  int64_t step = 0;
  StateDict state;
  Digest digest;  // of the state
};

// A file of a checkpoint, as its manifest lists it.
struct CheckpointPart {
  std::string file;
  int64_t bytes = 0;
  Digest digest;  // of the file
};

// A part while it is written, piece by piece. One that is not finished leaves nothing behind.
class PartFile {
 public:
  ~PartFile();
  PartFile(PartFile&&) noexcept;
  void write(const void* bytes, size_t count);
  int64_t bytes() const;
  CheckpointPart finish();  // returns when the file is on the disk

 private:
  friend class CheckpointStore;
  explicit PartFile(const std::filesystem::path& path);
  struct Open;
  std::unique_ptr<Open> open_;
};

class CheckpointStore {
 public:
  // Touches nothing. `keep` (at least 1) is how many of the newest write() leaves, besides step 0.
  explicit CheckpointStore(std::filesystem::path directory, int keep = 1);

  // For the process that is going to write: creates the directory, removes what an interrupted write left aside.
  void prepare();

  // A checkpoint may be written by several processes: each writes its parts aside, and one that knows them all makes
  // them a checkpoint. write_part() returns when the file is on the disk, which has the bytes of stream_safetensors().
  PartFile create_part(int64_t step, const std::string& file) const;
  CheckpointPart write_part(int64_t step, const std::string& file, const StateDict& tensors) const;
  // Returns when the checkpoint would survive a power cut. One that is already there with this digest stays; any other
  // of this step is replaced. On Failure (no room, a read-only disk) nothing new is left behind.
  void commit(int64_t step, const std::vector<CheckpointPart>& parts, const Digest& digest);
  void write(int64_t step, const StateDict& state, const Digest& digest);  // all of it by one process

  // Call after the commit of `step`: removes older checkpoints beyond `keep`, and uncommitted parts of earlier steps.
  // Returns "" or why something could not be removed; the next call tries again.
  std::string prune(int64_t step) const;
  // Remove uncommitted parts and ignore errors: those of one attempt in which a part could not be written; those of all
  // steps but the `keep` latest.
  void discard_parts(int64_t step, int parts) const;
  void trim_aside(size_t keep) const;

  // The checkpoint of step 0 of another run, if it has one.
  void copy_first(const CheckpointStore& other);

  std::vector<int64_t> steps() const;  // ascending; they may still turn out to be damaged

  // What its manifest says the digest of the state is; nothing without a readable one.
  std::optional<Digest> manifest_digest(int64_t step) const;
  // Reads and verifies one; throws Failure that says what is wrong with it.
  Checkpoint read(int64_t step) const;

  struct Rejected {
    int64_t step;
    std::string reason;
  };
  // The newest one that is undamaged and that `acceptable` finds no reason ("") against; those passed over are added
  // to `rejected`. Reads states until one is good; nothing if none is.
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
