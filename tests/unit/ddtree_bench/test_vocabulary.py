import copy
import json

import pytest

from ddtree_bench.findings import FindingCode
from ddtree_bench.stats.verdict import Verdict
from ddtree_bench.status import Status

VOCABULARIES = [Status, FindingCode, Verdict]


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_a_member_is_its_code(vocabulary):
    """JSON and CSV hold the code; reading it gives the member back, with its sentence."""
    for member in vocabulary:
        assert vocabulary(json.loads(json.dumps(member))) is member
        assert f"{member}" == member.value
        assert copy.deepcopy(member) is member


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_every_member_has_a_sentence_of_its_own(vocabulary):
    """Reports can say what happened without knowing the code."""
    sentences = [member.sentence for member in vocabulary]
    assert all(sentences)
    assert len(set(sentences)) == len(sentences)
