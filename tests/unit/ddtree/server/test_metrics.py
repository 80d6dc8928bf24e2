from ddtree.server.metrics import Counters, prometheus_page


def test_page_has_help_and_type_for_each_family():
    """Each sample follows the two comment lines of its family, as the text format wants."""
    family = ""
    for line in prometheus_page(Counters(), 1, 2, 16, "m").splitlines():
        if line.startswith("# TYPE "):
            family = line.split()[2]
        elif not line.startswith("#"):
            assert line.startswith(family + "{")
            float(line.rsplit(" ", 1)[1])


def test_names_are_those_of_the_recorded_server(recorded_metrics):
    """Every metric that a real server also has keeps its name and kind."""
    own = prometheus_page(Counters(), 0, 0, 16, "m")
    kinds = {line for line in own.splitlines() if line.startswith("# TYPE ")}
    # no request was aborted on the recorded server, so it does not show that counter
    missing = kinds - recorded_metrics
    assert missing == {"# TYPE sglang:num_aborted_requests_total counter"}


def test_model_name_is_escaped():
    """Quotes, backslashes and newlines in a label do not break the page."""
    page = prometheus_page(Counters(), 0, 0, 1, 'a"b\\c\nd')
    assert 'sglang:num_running_reqs{model_name="a\\"b\\\\c\\nd"} 0.0' in page.splitlines()
