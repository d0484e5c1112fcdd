#include "tools/repro/report_timeline.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "elastic/ledger/utc_time.h"
#include "tools/repro/report_curves.h"

namespace elinvar {

using Json = nlohmann::json;
using Ordered = nlohmann::ordered_json;

namespace {

bool ends_a_part(const std::string& name) {
  return name == "end" || name == "finished" || name == "interrupted" || name == "failed";
}

std::string text_of(const Json& event, const char* key) {
  const auto found = event.find(key);
  return found != event.end() && found->is_string() ? found->get<std::string>() : "";
}

int64_t number_of(const Json& event, const char* key) {
  const auto found = event.find(key);
  return found != event.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

PeerId peer_of(const Json& event) {
  const auto found = event.find("peer");
  return found != event.end() && found->is_number_unsigned() ? found->get<PeerId>() : 0;
}

constexpr size_t kMostRows = 250;
constexpr size_t kMostSpans = 2000;  // of all rows together
constexpr size_t kMostBands = 500;
constexpr double kColumns = 2000;  // columns of a screen; changes that are closer together are merged

// Merges consecutive stretches of time that are too short to be told apart; the merged stretch has the properties of
// its longest part.
template <class Stretch>
std::vector<Stretch> coarser(const std::vector<Stretch>& fine, double grain) {
  std::vector<Stretch> coarse;
  double longest = 0;
  for (const Stretch& s : fine) {
    const double length = s.to - s.from;
    if (coarse.empty() || s.to - coarse.back().from > grain) {
      coarse.push_back(s);
      longest = length;
      continue;
    }
    const double from = coarse.back().from;
    if (length > longest) coarse.back() = s;
    longest = std::max(longest, length);
    coarse.back().from = from;
    coarse.back().to = s.to;
  }
  return coarse;
}

class Story {
 public:
  Story(const std::vector<Generation>& generations, const TimeAxis& axis) : axis_(axis) {
    for (const Generation& g : generations) records_[g.number] = &g;
  }

  void tell(const Json& event) {
    const std::string name = text_of(event, "event");
    const std::optional<double> calendar = seconds_of_utc(text_of(event, "time"));
    if (!calendar) return;
    const double before = std::exchange(now_, std::max(now_, axis_.at(*calendar)));
    if (name == "start") alone_since_ = before;
    if (name == "hello" && !open(peer_of(event))) begin(peer_of(event));
    if (name == "generation") made(event);
    if (name == "switched") enter(number_of(event, "generation"));
    if (name == "lost") end(open(peer_of(event)), "died", text_of(event, "reason"), now_);
    if (name == "refused") end(open(peer_of(event)), "refused", text_of(event, "reason"), now_);
    const int64_t id = number_of(event, "worker");
    if (name == "left") end(id > 0 ? worker(id) : open(peer_of(event)), "left", "", now_);
    if (name == "fence") band("recovering", text_of(event, "reason"));
    if (name == "hold") band("holding", text_of(event, "reason"));
    if (name == "heard") close_band();
    if (!ends_a_part(name)) return;
    close_band();
    for (Row& row : rows_)
      if (!row.to) end(&row, "ended", "", now_);
  }

  Ordered json() {
    Ordered json = {{"workers", Ordered::array()}, {"bands", Ordered::array()}, {"resumed", Ordered::array()}};
    const double last = std::max(now_, axis_.end());
    close_band();
    for (Row& row : rows_) {
      row.to = row.to.value_or(last);
      if (!row.spans.empty()) row.spans.back().to = std::min(row.spans.back().to, *row.to);
    }
    const size_t all = rows_.size();
    leave_out_the_shortest();
    json["workers_left_out"] = all - rows_.size();
    const auto first = [](const Row& row) { return row.spans.empty() ? row.from : row.spans[0].from; };
    std::stable_sort(rows_.begin(), rows_.end(),
                     [&](const Row& a, const Row& b) { return std::pair(first(a), a.id) < std::pair(first(b), b.id); });
    const auto spans_of = [&](double grain) {
      size_t spans = 0;
      for (const Row& row : rows_) spans += coarser(row.spans, grain).size();
      return spans;
    };
    double grain = std::max(last, 1e-3) / kColumns;
    while (spans_of(grain) > kMostSpans) grain *= 2;
    for (const Row& row : rows_) {
      Ordered spans = Ordered::array();
      for (const Span& span : coarser(row.spans, grain))
        spans.push_back({{"from", rounded(span.from)},
                         {"to", rounded(span.to)},
                         {"generation", span.generation},
                         {"vranks", span.vranks}});
      json["workers"].push_back({{"id", row.id},
                                 {"peer", std::to_string(row.peer)},
                                 {"from", rounded(row.from)},
                                 {"to", rounded(*row.to)},
                                 {"how", row.how},
                                 {"reason", row.reason},
                                 {"spans", std::move(spans)}});
    }
    for (const Band& b : coarser(bands_, bands_.size() > kMostBands ? last / static_cast<double>(kMostBands) : -1))
      json["bands"].push_back(
          {{"from", rounded(b.from)}, {"to", rounded(b.to)}, {"what", b.what}, {"reason", b.reason}});
    double before = -1;
    for (const double at : axis_.resumed())
      if (before < 0 || at - before > last / kColumns) json["resumed"].push_back(rounded(before = at));
    json["seconds"] = rounded(last);
    return json;
  }

 private:
  static constexpr double kOpen = std::numeric_limits<double>::infinity();
  struct Span {
    double from;
    double to = kOpen;
    int64_t generation = 0;
    Ordered vranks = {};
  };
  struct Row {
    PeerId peer;
    int id = 0;
    double from;
    std::optional<double> to = {};
    std::string how = {}, reason = {};
    std::vector<Span> spans = {};
  };
  struct Band {
    double from, to;
    std::string what, reason;
  };

  // If there are too many rows, drops those that took part for the shortest time.
  void leave_out_the_shortest() {
    if (rows_.size() <= kMostRows) return;
    const auto longer = [](const Row& a, const Row& b) { return *a.to - a.from > *b.to - b.from; };
    std::stable_sort(rows_.begin(), rows_.end(), longer);
    rows_.erase(rows_.begin() + kMostRows, rows_.end());
  }

  // Returns the row of a process that has not ended.
  Row* open(PeerId peer) {
    for (Row& row : rows_)
      if (row.peer == peer && !row.to) return &row;
    return nullptr;
  }
  Row* worker(int64_t id) {
    for (Row& row : rows_)
      if (row.id == id && !row.to) return &row;
    return nullptr;
  }
  Row& begin(PeerId peer) { return rows_.emplace_back(Row{.peer = peer, .from = now_}); }

  void end(Row* row, const std::string& how, const std::string& reason, double when) {
    if (!row) return;
    row->to = std::max(when, row->from);
    row->how = how == "died" && reason.starts_with("the audit") ? "evicted" : how;
    row->reason = reason;
    close_span(*row, *row->to);
  }

  static void close_span(Row& row, double when) {
    if (!row.spans.empty()) row.spans.back().to = std::min(row.spans.back().to, when);
  }

  void band(const std::string& what, const std::string& reason) {
    close_band();
    band_ = {now_, now_, what, reason};
  }
  void close_band() {
    if (!band_) return;
    band_->to = now_;
    bands_.push_back(*std::exchange(band_, std::nullopt));
  }

  void made(const Json& event) {
    const int64_t number = number_of(event, "number");
    const auto record = records_.find(number);
    if (record != records_.end() && record->second->follows == 0) enter(number);
  }

  void enter(int64_t number) {
    close_band();
    const auto record = records_.find(number);
    if (record == records_.end()) return;
    const Generation& generation = *record->second;
    for (Row& row : rows_) {
      if (row.to || generation.index_of(row.peer) >= 0) continue;
      const bool member = !row.spans.empty();
      close_span(row, now_);
      // Its end was not recorded: it was gone when the next coordinator looked.
      if (member && alone_since_ && generation.follows == 0) end(&row, "gone", "", *alone_since_);
    }
    alone_since_.reset();
    for (const GenerationMember& m : generation.members) {
      Row* known = open(m.peer);
      Row& row = known ? *known : begin(m.peer);
      row.id = m.id;
      Ordered vranks = Ordered::array();
      for (const Interval& interval : m.share) vranks.push_back({interval.begin, interval.end});
      close_span(row, now_);
      row.spans.push_back({.from = now_, .generation = number, .vranks = std::move(vranks)});
    }
  }

  const TimeAxis& axis_;
  std::map<int64_t, const Generation*> records_;
  std::vector<Row> rows_;
  std::vector<Band> bands_;
  std::optional<Band> band_;
  std::optional<double> alone_since_;  // time of the last event before a new coordinator, until a generation begins
  double now_ = 0;
};

}  // namespace

TimeAxis::TimeAxis(const std::vector<Json>& events, const std::vector<double>& steps) {
  bool any = false, over = false;
  size_t step = 0;
  for (const Json& event : events) {
    const std::optional<double> told = seconds_of_utc(text_of(event, "time"));
    if (!told) continue;
    const double time = *told;
    const std::string name = text_of(event, "event");
    if (!any) begin_ = last_ = time;
    any = true;
    for (; step < steps.size() && steps[step] <= time; ++step) last_ = std::max(last_, steps[step]);
    // A coordinator that takes over continues the part.
    const bool goes_on = name == "resume" || (name == "start" && over);
    if (goes_on && time > last_) {
      resumed_.push_back(at(last_));
      cuts_.emplace_back(time, time - last_);
    }
    over = !goes_on && (over || ends_a_part(name));
    last_ = std::max(last_, time);
  }
  if (!any && !steps.empty()) begin_ = steps.front();
  if (!steps.empty()) last_ = std::max(last_, steps.back());
}

double TimeAxis::at(double calendar) const {
  double seconds = calendar - begin_;
  for (const auto& [from, length] : cuts_)
    if (calendar >= from) seconds -= length;
  return std::max(0.0, seconds);
}

double TimeAxis::end() const { return at(last_); }

Ordered timeline(const std::vector<Json>& events, const std::vector<Generation>& generations, const TimeAxis& axis) {
  Story story(generations, axis);
  for (const Json& event : events) story.tell(event);
  return story.json();
}

}  // namespace elinvar
