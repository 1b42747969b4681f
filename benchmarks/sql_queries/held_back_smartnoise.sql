-- group, variance, order
SELECT married, STDDEV(age) AS s, VARIANCE(income) AS v FROM PUMS.PUMS GROUP BY married ORDER BY married;
-- log of a column
SELECT sex, AVG(LN(income + 1)) AS l FROM PUMS.PUMS GROUP BY sex;
-- geometric mean, log of a column
SELECT EXP(AVG(LN(income + 1))) AS geometric FROM PUMS.PUMS;
-- power in where
SELECT COUNT(*) AS n, SUM(income) AS s FROM PUMS.PUMS WHERE age + educ > 60 AND income > POWER(age, 2);
-- having, order, limit
SELECT educ, married, COUNT(*) AS n FROM PUMS.PUMS GROUP BY educ, married HAVING COUNT(*) > 5 ORDER BY n DESC, educ, married LIMIT 5;
-- TOP
SELECT TOP 3 educ, AVG(income) AS m FROM PUMS.PUMS GROUP BY educ ORDER BY m DESC; -- duck: SELECT educ, AVG(income) AS m FROM PUMS GROUP BY educ ORDER BY m DESC LIMIT 3
-- arithmetic of columns, derived bounds
SELECT AVG(income / 1000) AS k, SUM(age * income) AS w FROM PUMS.PUMS;
-- round, deviation
SELECT ROUND(AVG(age), 1) AS a, ROUND(STD(age), 2) AS s FROM PUMS.PUMS; -- duck: SELECT ROUND(AVG(age), 1) AS a, ROUND(STDDEV(age), 2) AS s FROM PUMS
-- functions on outputs
SELECT race, SQRT(VAR(income)) AS s FROM PUMS.PUMS GROUP BY race; -- duck: SELECT race, SQRT(VARIANCE(income)) AS s FROM PUMS GROUP BY race
-- count distinct of a column
SELECT sex, COUNT(DISTINCT educ) AS levels FROM PUMS.PUMS GROUP BY sex;
-- outer select over grouped
SELECT c.sex, c.n FROM (SELECT sex, COUNT(*) AS n FROM PUMS.PUMS WHERE age > 30 GROUP BY sex) AS c ORDER BY c.n DESC;
-- binned
SELECT FLOOR(age / 10) * 10 AS decade, AVG(income) AS m FROM PUMS.PUMS GROUP BY decade;
-- where with or and null
SELECT COUNT(*) AS n FROM PUMS.PUMS WHERE age IS NOT NULL AND race <> 'white' OR sex = 1;
-- rows; refuse
SELECT pid, age FROM PUMS.PUMS ORDER BY income DESC;
