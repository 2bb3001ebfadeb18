"""Estimator, Model, Param and Params of pyspark.ml, so that pipelines take our estimator; where there is no pyspark, what
we use of them."""
import copy

try:
    from pyspark.ml import Estimator, Model
    from pyspark.ml.param import Param, Params
    from pyspark.ml.param.shared import HasOutputCols
except ImportError:

    class Param:
        def __init__(self, parent, name, doc, typeConverter=None):
            self.parent, self.name, self.doc = parent, name, doc
            self.typeConverter = typeConverter or (lambda value: value)

        def __repr__(self):
            return self.name

    class Params:
        def __init__(self):
            self._paramMap, self._defaultParamMap = {}, {}

        @staticmethod
        def _dummy():
            return None

        @property
        def params(self):
            return [value for name in sorted(dir(type(self))) if isinstance(value := getattr(type(self), name), Param)]

        def getParam(self, name):
            return getattr(self, name)

        def hasParam(self, name):
            return isinstance(getattr(type(self), name, None), Param)

        def _set(self, **values):
            for name, value in values.items():
                param = getattr(self, name)
                try:
                    self._paramMap[param] = value if value is None else param.typeConverter(value)
                except TypeError as error:
                    raise TypeError(f'Invalid param value given for param "{name}". {error}') from None
            return self

        def _setDefault(self, **values):
            self._defaultParamMap.update((getattr(self, name), value) for name, value in values.items())

        def isSet(self, param):
            return param in self._paramMap

        def getOrDefault(self, param):
            param = getattr(self, param) if isinstance(param, str) else param
            return self._paramMap[param] if param in self._paramMap else self._defaultParamMap[param]

        def copy(self, extra=None):
            that = copy.copy(self)
            that._paramMap, that._defaultParamMap = dict(self._paramMap), dict(self._defaultParamMap)
            return that._set(**{param.name: value for param, value in (extra or {}).items()})

    class Estimator(Params):
        def fit(self, dataset, params=None):
            if isinstance(params, (list, tuple)):
                return [self.fit(dataset, one) for one in params]
            return (self.copy(params) if params else self)._fit(dataset)

    class Model(Params):
        def transform(self, dataset, params=None):
            return (self.copy(params) if params else self)._transform(dataset)

    class HasOutputCols(Params):
        outputCols = Param(None, "outputCols", "output column names.")

        def getOutputCols(self):
            return self.getOrDefault(self.outputCols)
