#pragma once
// Streams, events and graphs as CUDA defines them, for devices without a GPU. Work that is queued runs when something
// forces it, on the thread that does: a host that reads without waiting sees old bytes, and so does work on one stream
// that should have waited for another. The order of work is one of those that CUDA allows, chosen by the Schedule.
//
// All functions are thread-safe; a stream, event or graph that is destroyed may have pending work. They throw
// std::logic_error where CUDA returns an error because of stream capture.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

namespace elinvar::emulation {

// The environment variable ELINVAR_SCHEDULE sets the schedule of a process; the default is late.
struct Schedule {
  enum class Kind {
    eager,   // work runs when it is queued
    late,    // only what is waited for runs; of the work that may run, that which was queued last is first
    random,  // a seed decides what runs when
  };
  Kind kind = Kind::late;
  uint64_t seed = 0;

  static Schedule parse(const std::string& text);  // "eager", "late" or a seed
};

class Scheduler {
 public:
  using Work = std::function<void()>;

  // A piece of work, and the pieces that come before it.
  struct Entry;
  using Point = std::shared_ptr<Entry>;

  struct Capture;

  struct Stream {
    int device = 0;
    Point last = {};                        // what was queued last; may be null
    std::shared_ptr<Capture> capture = {};  // the graph to which calls go instead; may be null
    Point captured = {};                    // the last node of that graph on this stream; may be null
  };
  struct Recorded {
    Point point = {};                       // null before the first record
    std::shared_ptr<Capture> capture = {};  // the graph of which the point is a node; may be null
    int questions = 0;                      // since it was recorded
  };
  using Event = std::shared_ptr<Recorded>;  // shared with graphs that record it
  struct Graph {
    std::vector<Point> nodes;
    Point last_launch = {};
  };

  explicit Scheduler(const Schedule& schedule) { use(schedule); }
  static Scheduler& instance();  // the process's; never destroyed

  void finish();                       // runs all pending work
  void use(const Schedule& schedule);  // changes the schedule; nothing may be pending

  void queue(Stream& stream, Work work);
  // If `external` is set and the stream records a graph, each launch of the graph records the event.
  void record(const Event& event, Stream& stream, bool external = false);
  // Later work on the stream waits for the event. If the event is part of a graph that is being recorded, the stream is
  // recorded, too, from now on.
  void wait(Stream& stream, const Event& event);

  // Whether the event has occurred. Runs work, so that a host that asks again and again gets an answer.
  bool done(const Event& event);
  bool idle(const Stream& stream);  // whether no work is pending; runs none
  void synchronize(const Event& event);
  void synchronize(Stream& stream);
  void synchronize(int device);

  void begin_capture(Stream& stream);
  Graph end_capture(Stream& stream);
  void launch(Graph& graph, Stream& stream);

 private:
  // The caller of these holds state_.
  Point add(Stream& stream, Work work, std::vector<Point> after);
  void add_node(Stream& stream, Work work, std::vector<Point> after);
  void join(const std::shared_ptr<Capture>& capture, Stream& stream);
  std::vector<Point> to_run_after_queueing(const Point& point);
  Point any_pending();
  size_t choose(const std::vector<Point>& ready);

  // Runs these and what comes before them.
  void run(std::vector<Point> targets);

  std::mutex running_;  // held while work runs; locked before state_
  std::mutex state_;    // guards the rest, and all streams, events and graphs
  Schedule schedule_;
  std::mt19937_64 random_;
  uint64_t next_ = 0;
  std::map<uint64_t, Point> pending_;
  std::map<int, int> captured_streams_;  // how many, by device
};

}  // namespace elinvar::emulation
