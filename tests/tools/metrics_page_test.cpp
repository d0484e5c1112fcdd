// Metrics for Prometheus: their text, the server, and a job that is queried while it trains.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <chrono>
#include <regex>
#include <set>
#include <stdexcept>
#include <thread>

#include "tensor/base/file.h"
#include "tests/jobs/tiny_job.h"
#include "tools/training/prometheus.h"
#include "tools/web/prometheus_text.h"
#include "tools/web/server.h"

namespace elinvar::test {
namespace {

using Json = nlohmann::json;

// Returns the answer to these bytes at "http://127.0.0.1:PORT..", from a server that may wait for more of them.
std::string answer_to(const std::string& url, const std::string& request, bool more = true) {
  const int port = std::stoi(url.substr(std::string("http://127.0.0.1:").size()));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval patience{.tv_sec = 20, .tv_usec = 0};
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  std::string answer;
  if (::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
    (void)!::send(socket, request.data(), request.size(), MSG_NOSIGNAL);
    if (!more) ::shutdown(socket, SHUT_WR);
    char bytes[4096];
    for (ssize_t n = 0; (n = ::recv(socket, bytes, sizeof bytes, 0)) > 0;) answer.append(bytes, static_cast<size_t>(n));
  }
  ::close(socket);
  return answer;
}

std::string get(const std::string& url, const std::string& path, const std::string& verb = "GET") {
  const std::string host = url.substr(std::string("http://").size());
  return answer_to(url, verb + " " + path + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n");
}

int status_of(const std::string& answer) { return answer.size() > 12 ? std::atoi(answer.c_str() + 9) : 0; }
std::string body_of(const std::string& answer) { return answer.substr(answer.find("\r\n\r\n") + 4); }

// Returns samples by name and labels. Fails the test if a line is malformed or not next to the others of its metric.
std::map<std::string, double> parse_exposition(const std::string& text) {
  std::map<std::string, double> samples;
  std::set<std::string> types;
  std::string metric;
  static const std::regex comment(R"(# (HELP|TYPE) ([a-z_]+) (.+))");
  static const std::regex sample(R"re(([a-z_]+)(\{[a-z_]+="([^"\\]|\\.)*"(,[a-z_]+="([^"\\]|\\.)*")*\}) (\S+))re");
  for (const std::string& line : lines_of(text)) {
    std::smatch match;
    if (std::regex_match(line, match, comment)) {
      metric = match[2];
      if (match[1] == "TYPE") {
        EXPECT_TRUE(types.insert(metric).second) << line;
        EXPECT_TRUE(match[3] == "gauge" || match[3] == "counter") << line;
        EXPECT_EQ(match[3] == "counter", metric.ends_with("_total")) << line;
      }
      continue;
    }
    EXPECT_TRUE(std::regex_match(line, match, sample)) << line;
    EXPECT_EQ(match[1], metric);
    EXPECT_TRUE(types.contains(metric)) << line;
    EXPECT_TRUE(samples.emplace(match[1].str() + match[2].str(), std::stod(match[6])).second) << line;
  }
  return samples;
}

TEST(Prometheus, ANewJobIsNotUpYet) {
  EXPECT_EQ(parse_exposition(prometheus_text(Json::object())),
            (std::map<std::string, double>{{R"(elinvar_up{run=""})", 0}}));
}

TEST(Prometheus, TellsWhatTheStatusTells) {
  const Json status = {{"run", "my \"run\"\\\n"},
                       {"step", 41},
                       {"steps", 100},
                       {"loss", 0.25},
                       {"accuracy", std::nan("")},
                       {"generation", 3},
                       {"samples", 123456789012},
                       {"workers", {{{"state", "member"}}, {{"state", "member"}}, {{"state", "learning"}}}},
                       {"goodput",
                        {{"goodput", 0.5},
                         {"seconds", 20.0},
                         {"training", 10.0},
                         {"lost", {{"recovering", {{"seconds", 9.5}, {"times", 2}}}}}}},
                       {"event_counts", {{"lost", 2}}}};
  const std::map<std::string, double> samples = parse_exposition(prometheus_text(status));
  const std::string run = R"({run="my \"run\"\\\n")";
  EXPECT_EQ(samples.at("elinvar_step" + run + "}"), 41);
  EXPECT_EQ(samples.at("elinvar_loss" + run + "}"), 0.25);
  EXPECT_TRUE(std::isnan(samples.at("elinvar_accuracy" + run + "}")));
  EXPECT_EQ(samples.at("elinvar_samples_total" + run + "}"), 123456789012);
  EXPECT_EQ(samples.at("elinvar_workers" + run + R"(,state="member"})"), 2);
  EXPECT_EQ(samples.at("elinvar_workers" + run + R"(,state="learning"})"), 1);
  EXPECT_EQ(samples.at("elinvar_goodput_ratio" + run + "}"), 0.5);
  EXPECT_EQ(samples.at("elinvar_lost_seconds_total" + run + R"(,cause="recovering"})"), 9.5);
  EXPECT_EQ(samples.at("elinvar_interruptions_total" + run + R"(,cause="recovering"})"), 2);
  EXPECT_EQ(samples.at("elinvar_events_total" + run + R"(,event="lost"})"), 2);
  EXPECT_FALSE(samples.contains("elinvar_validation_loss" + run + "}"));
}

TEST(PrometheusText, EscapesLabelsAndKeepsIntegers) {
  PrometheusText page("app_", {{"pool", "a\"b"}});
  page.metric("jobs", "gauge", "Jobs.");
  page.sample(int64_t{9007199254740993});
  page.sample(0.5, {{"name", "x\\y\nz"}});
  page.sample(-std::numeric_limits<double>::infinity(), {{"name", "least"}});
  EXPECT_EQ(page.text(),
            "# HELP app_jobs Jobs.\n# TYPE app_jobs gauge\n"
            "app_jobs{pool=\"a\\\"b\"} 9007199254740993\n"
            "app_jobs{pool=\"a\\\"b\",name=\"x\\\\y\\nz\"} 0.5\n"
            "app_jobs{pool=\"a\\\"b\",name=\"least\"} -Inf\n");
  PrometheusText plain("app_");
  plain.metric("slots", "gauge", "Slots.");
  plain.sample(int64_t{5});
  EXPECT_TRUE(plain.text().ends_with("\napp_slots 5\n")) << plain.text();
}

TEST(WebServer, ServesPagesAndNothingElse) {
  const WebServer server("127.0.0.1", 0, [](const WebRequest& request) -> std::optional<WebPage> {
    if (request.path == "/bad") throw std::runtime_error("it broke");
    if (request.path == "/page")
      return WebPage{"text/plain", "hello" + (request.query.contains("x") ? request.query.at("x") : "")};
    return std::nullopt;
  });
  const std::string page = get(server.url(), "/page?x=1");
  EXPECT_EQ(status_of(page), 200) << page;
  EXPECT_EQ(body_of(page), "hello1");
  EXPECT_NE(page.find("Content-Type: text/plain"), std::string::npos);
  EXPECT_EQ(body_of(get(server.url(), "/page", "HEAD")), "");
  EXPECT_EQ(status_of(get(server.url(), "/other")), 404);
  EXPECT_EQ(status_of(get(server.url(), "/bad")), 500);
  EXPECT_EQ(status_of(get(server.url(), "/page", "DELETE")), 405);
  EXPECT_EQ(
      status_of(answer_to(server.url(), "GET /page HTTP/1.1\r\nHost: elsewhere.example\r\nConnection: close\r\n\r\n")),
      403);
}

// Clients that are served last, if at all.
class Crowd {
 public:
  explicit Crowd(const std::string& url) : port_(std::stoi(url.substr(std::string("http://127.0.0.1:").size()))) {}
  ~Crowd() {
    for (const int socket : sockets_) ::close(socket);
  }
  void come(int count, const std::string& says) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port_));
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    for (int i = 0; i < count; ++i) {
      sockets_.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      ASSERT_EQ(::connect(sockets_.back(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
      (void)!::send(sockets_.back(), says.data(), says.size(), MSG_NOSIGNAL);
    }
  }
  void say(const std::string& more) {
    for (const int socket : sockets_) (void)!::send(socket, more.data(), more.size(), MSG_NOSIGNAL);
  }
  // Returns how many of them the server has disconnected.
  int gone() {
    int count = 0;
    char byte = 0;
    for (const int socket : sockets_)
      if (const ssize_t n = ::recv(socket, &byte, 1, MSG_DONTWAIT); n == 0 || (n < 0 && errno != EAGAIN)) ++count;
    return count;
  }

 private:
  int port_;
  std::vector<int> sockets_;
};

TEST(WebServer, NobodyWaitsForWhoSaysNothingOrGoesOnByteByByte) {
  const std::string large(8 << 20, 'x');
  const WebServer server("127.0.0.1", 0, [&](const WebRequest& request) {
    return WebPage{"text/plain", request.path == "/large" ? large : "hello"};
  });
  const std::string host = server.url().substr(std::string("http://").size());
  Crowd idle(server.url()), dripping(server.url()), deaf(server.url());
  idle.come(50, "");
  dripping.come(50, "GET /metrics HTTP/1.1\r\nX-Y: ");
  deaf.come(20, "GET /large HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  for (int i = 0; i < 5; ++i) {
    dripping.say("y");
    EXPECT_EQ(body_of(get(server.url(), "/metrics")), "hello");
  }
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(2));
  // The request as a whole has a time limit, even if bytes keep arriving.
  while (dripping.gone() < 50 && Clock::now() - begin < std::chrono::seconds(30)) {
    dripping.say("y");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_EQ(dripping.gone(), 50);
  EXPECT_EQ(idle.gone(), 50);
}

TEST(WebServer, WhoHasBeenThereForLongestMakesRoom) {
  const WebServer server("127.0.0.1", 0, [](const WebRequest&) { return WebPage{"text/plain", "hello"}; });
  Crowd crowd(server.url());
  crowd.come(300, "");
  EXPECT_EQ(body_of(get(server.url(), "/metrics")), "hello");
  EXPECT_GE(crowd.gone(), 45);
}

TEST(WebServer, ARequestForManyPartsGetsThePageOnce) {
  const std::string page(100000, 'x');
  const WebServer server("127.0.0.1", 0, [&](const WebRequest&) { return WebPage{"text/plain", page}; });
  const std::string host = server.url().substr(std::string("http://").size());
  std::string parts = "0-";
  for (int i = 0; i < 1000; ++i) parts += ",0-";
  const std::string answer =
      answer_to(server.url(), "GET /page HTTP/1.1\r\nHost: " + host + "\r\nRange: bytes=" + parts + "\r\n\r\n");
  EXPECT_LT(answer.size(), page.size() + 1000);
}

TEST(WebServer, OutlivesWhatStrangersSend) {
  const WebServer server("127.0.0.1", 0, [](const WebRequest&) { return WebPage{"text/plain", "hello"}; });
  for (const std::string& request : {"GET /" + std::string(100000, 'a') + " HTTP/1.1\r\n\r\n",
                                     std::string("POST /page HTTP/1.1\r\nContent-Length: 100000000\r\n\r\nxyz"),
                                     "GET /page HTTP/1.1\r\n" + std::string(100000, 'a') + ": b\r\n\r\n",
                                     "GET /page HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n" +
                                         std::string("\r\n0\r\n\r\nGET /page HTTP/1.1\r\n\r\n"),
                                     std::string("\x16\x03\x01\x02\r\n\r\n"), std::string("GET\r\n\r\n"),
                                     "GET /" + std::string(5, '\xff') + " HTTP/9.9\r\n\r\n"})
    EXPECT_NE(status_of(answer_to(server.url(), request, /*more=*/false)), 200) << request.substr(0, 60);
  EXPECT_EQ(body_of(get(server.url(), "/page")), "hello");
}

TEST(WebServer, SaysWhatIsWrongWithItsAddress) {
  const auto none = [](const WebRequest&) -> std::optional<WebPage> { return std::nullopt; };
  EXPECT_THROW(WebServer("192.0.2.1", 0, none), Failure);
  const WebServer server("127.0.0.1", 0, none);
  const int port = std::stoi(server.url().substr(server.url().rfind(':') + 1));
  EXPECT_NE(message_of<Failure>([&] { WebServer("127.0.0.1", port, none); }).find("is taken"), std::string::npos);
}

class ObservedJob : public TinyJob {};

TEST_F(ObservedJob, TellsPrometheusHowItGoes) {
  const pid_t job = start("run", {"--steps", "1000000", "--workers", "2", "--metrics-port", "0"});
  reach("run", 30);
  const std::string out = read_file(folder_ / "run.out");
  std::smatch match;
  ASSERT_TRUE(std::regex_search(out, match, std::regex("metrics: (http://127.0.0.1:[0-9]+)/metrics\n"))) << out;
  const std::string url = match[1];
  std::map<std::string, double> samples;
  const auto scrape = [&] { samples = parse_exposition(body_of(get(url, "/metrics"))); };
  const std::string run = R"({run="job"})";
  do scrape();
  while (samples["elinvar_step" + run] < 30);
  EXPECT_EQ(samples.at("elinvar_up" + run), 1);
  EXPECT_EQ(samples.at("elinvar_planned_steps" + run), 1000000);
  EXPECT_EQ(samples.at(R"(elinvar_workers{run="job",state="member"})"), 2);
  EXPECT_GT(samples.at("elinvar_loss" + run), 0);
  EXPECT_GE(samples.at("elinvar_samples_total" + run), 2 * samples.at("elinvar_steps_total" + run));
  EXPECT_EQ(samples.at(R"(elinvar_events_total{run="job",event="start"})"), 1);
  EXPECT_EQ(wait(spawn({"ctl", folder_ / "run", "stop"}, "ctl"), "ctl").code, 0);
  const Ended ended = wait(job, "run");
  EXPECT_EQ(ended.code, 0) << ended.err;
  const std::vector<std::string> lines = lines_of(ledger("run")), whole = lines_of(undisturbed());
  for (size_t i = 1; i + 1 < std::min(lines.size(), whole.size()); ++i) EXPECT_EQ(lines[i], whole[i]);
}

}  // namespace
}  // namespace elinvar::test
