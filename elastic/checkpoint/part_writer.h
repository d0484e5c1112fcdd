#pragma once
// Writes the parts that workers stream to their coordinator (part_stream.h) in a separate thread, so that the
// coordinator answers heartbeats while the disk works.
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "elastic/checkpoint/part_stream.h"

namespace elinvar {

class PartWriter {
 public:
  // A part that is on disk, or that has an error.
  struct Finished {
    int64_t step = 0;
    messages::Saved saved;
  };
  using Answer = std::function<void(PeerId worker, int64_t step, messages::Taken)>;
  // Both callbacks are called from the thread: `answer` for each piece, `news` when finished() has results.
  PartWriter(CheckpointStore store, Answer answer, std::function<void()> news);
  ~PartWriter();  // drops what is not written

  static bool takes(const Message& message);  // a piece, or the Saved of a streamed part
  void add(Message message);
  std::vector<Finished> finished();

 private:
  void write(const std::stop_token& stop);

  PartReceiver receiver_;
  Answer answer_;
  std::function<void()> news_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Message> waiting_;
  std::vector<Finished> finished_;
  std::jthread thread_;
};

}  // namespace elinvar
