"""The object that a frame works on, which names the module of an allocation."""



class Layer:
    def __call__(self, function):
        return self.forward(function)

    def forward(self, function):
        return function()


def modules_of(probe, captured):
    return [module for _, module in probe.modules(captured[0]) if module]


def test_a_followed_frame_carries_its_object(probe):
    assert probe.follow(Layer.__call__.__code__)
    outer, inner = Layer(), Layer()
    captured = outer(lambda: inner(probe.capture))
    assert modules_of(probe, captured) == ["<Layer>", "<Layer>"]
    named = [name for name, module in probe.modules(captured[0]) if module]
    assert named == ["__call__", "__call__"]
    assert probe.name(outer, "block") == probe.name(inner, "block.0") == 0
    # Names reach stacks seen before, and the latest wins.
    assert modules_of(probe, captured) == ["block.0", "block"]
    assert probe.name(inner, "block.0.fc") == 0
    assert modules_of(probe, captured) == ["block.0.fc", "block"]
    again = outer(lambda: inner(probe.capture_released))
    assert modules_of(probe, again) == ["block.0.fc", "block"]
    # The object tells stacks apart that are equal otherwise.
    first, second = [layer(probe.capture) for layer in (outer, inner)]
    assert first[0] != second[0]


def test_an_object_at_the_address_of_a_forgotten_one_is_another(probe):
    assert probe.follow(Layer.__call__.__code__)
    layer = Layer()

    def call():
        return layer(probe.capture)

    before = call()
    probe.name(layer, "first")
    probe.forget(layer)
    after = call()
    probe.name(layer, "second")
    assert modules_of(probe, before) == ["first"]
    assert modules_of(probe, after) == ["second"]
    assert modules_of(probe, call()) == ["second"]


def test_an_object_that_changes_its_class_is_another(probe):
    class Other(Layer):
        pass

    assert probe.follow(Layer.__call__.__code__)
    layer = Layer()
    probe.forget(layer)  # an earlier test may have named what lived here
    seen = []
    for kind in (Layer, Other):
        layer.__class__ = kind
        seen.append(modules_of(probe, layer(probe.capture)))
    assert seen == [["<Layer>"], ["<Other>"]]


def test_generators_and_coroutines_carry_their_object(probe):
    class Stream:
        def __call__(self):
            yield probe.capture()

    assert probe.follow(Stream.__call__.__code__)
    stream = Stream()
    captured = list(stream())
    assert modules_of(probe, captured[0]) == ["<Stream>"]


def test_a_first_argument_that_is_not_in_the_frame_is_not_followed(probe):
    def cell(self):
        return lambda: self

    def nothing():
        pass

    def rest(*args):
        pass

    for function in (cell, nothing, rest):
        assert not probe.follow(function.__code__)

    def gone(self):
        del self
        return probe.capture()

    assert probe.follow(gone.__code__)
    assert modules_of(probe, gone(Layer())) == []
